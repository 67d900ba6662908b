"""Settings of a server: a flag, else an environment variable, else a line of one TOML file, else the default."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from foldaway.errors import ServerError, did_you_mean

_NAMES: set[str] = set()


def setting(name: str, **about: Any) -> Any:
    """An option of a server; its environment variable and its line of the file have the same name."""
    _NAMES.add(name.replace("-", "_"))
    return typer.Option(f"--{name}", envvar=f"FOLDAWAY_{name.replace('-', '_').upper()}", **about)


def _read(context: typer.Context, file: Path | None) -> Path | None:
    """Let the file's lines take the place of the defaults.

    Raises:
        ServerError: It cannot be read, or holds what is no setting.
    """
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
                f"the configuration {file} has a line `{name}`, which is not a setting{did_you_mean(name, _NAMES)}"
            )
        if not isinstance(value, str | int | float):
            raise ServerError(f"`{name}` in the configuration {file} must be text, a number, true or false.")
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
