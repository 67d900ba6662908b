"""The settings of a server, for all commands that open its database.

A flag, else an environment variable, else a line of one TOML file, else the default.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foldaway.cli.terminal.connecting import extra
from foldaway.errors import ServerError, did_you_mean

if TYPE_CHECKING:
    from foldaway.service.database.store import Store

_NAMES: set[str] = set()


def setting(name: str, **about: Any) -> Any:
    """An option of a server; its environment variable and its line of the file have the same name."""
    _NAMES.add(name.replace("-", "_"))
    return typer.Option(f"--{name}", envvar=f"FOLDAWAY_{name.replace('-', '_').upper()}", **about)


def _read(context: typer.Context, file: Path | None) -> Path | None:
    """Let the file's lines take the place of the defaults."""
    if file is None:
        return None
    try:
        lines = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ServerError(f"the configuration {file} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        # The position, but not the line, which may be a token.
        raise ServerError(f"the configuration {file} is not TOML: {str(error).partition(':')[0]}.") from None
    given = {name.replace("-", "_"): value for name, value in lines.items()}
    for name, value in given.items():
        if name not in _NAMES:
            raise ServerError(
                f"the configuration {file} has a line {name!r}, which is not a setting{did_you_mean(name, _NAMES)}"
            )
        if name == "allow_origin":
            fits, kind = isinstance(value, list) and all(isinstance(each, str) for each in value), "a list of text"
        else:
            fits, kind = isinstance(value, str | int | float), "text, a number, true or false"
        if not fits:
            raise ServerError(f"`{name}` in the configuration {file} must be {kind}.")
    context.default_map = given
    return file


Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="FOLDAWAY_CONFIG",
        is_eager=True,
        callback=_read,
        help="A TOML file with any of these settings, in the form port = 8321.",
    ),
]

Data = Annotated[Path | None, setting("data", help="A folder for the trials, stored in SQLite there.")]
Database = Annotated[str | None, setting("database", help="A PostgreSQL database, for several servers: postgresql://…")]
KeyFile = Annotated[
    Path | None,
    setting("key-file", help="The key that encrypts what is stored. The default is FOLDAWAY_KEY, or DATA/master.key."),
]
VersionKeys = Annotated[
    Path | None,
    setting(
        "version-keys",
        help="A file for the keys of what is overwritten, one for all servers. The default is DATA/version.keys; for a "
        "database, a file in this user's home.",
    ),
]
PasswordFile = Annotated[
    Path | None,
    setting(
        "database-password-file",
        help="A file with the database's password. The default is FOLDAWAY_DATABASE_PASSWORD.",
    ),
]


def opened(
    data: Path | None,
    database: str | None,
    key_file: Path | None,
    password_file: Path | None,
    version_keys: Path | None,
    *,
    new: bool,
) -> Store:
    """The database of a server, which need not run; one that does not exist is refused unless it may be new."""
    with extra():
        from foldaway.service.server import Settings, open_store

    settings = Settings(data, database, key_file=key_file, password_file=password_file, version_keys=version_keys)
    return open_store(settings, new=new)
