"""``foldaway serve``, ``foldaway key`` and ``foldaway rotate``: a server, and the key of what it stores.

Its settings: a flag, else an environment variable, else a line of one TOML file, else the default.
"""

from __future__ import annotations

import os
import signal
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from foldaway.cli.terminal.connecting import extra
from foldaway.errors import ServerError, did_you_mean

app = typer.Typer()

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


@app.command()
def serve(
    data: Data = None,
    database: Database = None,
    host: Annotated[str, setting("host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, setting("port", help="The port to listen on; 0 for any that is free.")] = 8321,
    shard: Annotated[
        str | None, setting("shard", help="This server's name among those on one database; by default, the host name.")
    ] = None,
    key_file: KeyFile = None,
    admin_token: Annotated[
        str | None,
        setting(
            "admin-token",
            help="An admin token of your own, from `foldaway token new`. Do not give it on the command line, where "
            "others can read it.",
        ),
    ] = None,
    admin_token_file: Annotated[
        Path | None,
        setting(
            "admin-token-file",
            help="The same, in a file. If there is no such file, the server writes its first admin token there. The "
            "default is DATA/admin.token; at a terminal the token is shown instead.",
        ),
    ] = None,
    certificate: Annotated[Path | None, setting("certificate", help="A certificate for https.")] = None,
    certificate_key: Annotated[Path | None, setting("certificate-key", help="The certificate's private key.")] = None,
    max_body: Annotated[
        int, setting("max-body", min=1, help="The largest batch that the server accepts, in MiB.")
    ] = 32,
    queue: Annotated[
        int,
        setting(
            "queue",
            min=1,
            help="How many batches the server handles at once; one token may use at most half of the places that are "
            "free.",
        ),
    ] = 64,
    patience: Annotated[float, setting("patience", min=0.1, help="Seconds in which a batch must arrive.")] = 60.0,
    quiet: Annotated[bool, setting("quiet", help="Log only what fails, not every request or step.")] = False,
    database_password_file: PasswordFile = None,
    version_keys: VersionKeys = None,
    tick: Annotated[
        float,
        setting(
            "tick",
            min=0,
            help="Seconds between two changes of what others can see. With 0, everybody can watch single records "
            "arrive.",
        ),
    ] = 60.0,
    allow_origin: Annotated[
        list[str] | None,
        setting(
            "allow-origin",
            metavar="ORIGIN",
            help="Let pages of this origin, such as https://shop.example, send records and take part as devices. "
            "Repeat it for several; write blanks between them in the environment, and a list in a file. The default "
            "is none.",
        ),
    ] = None,
    token_rate: Annotated[
        float,
        setting(
            "token-rate",
            min=0,
            help="How many requests a second senders and devices may make with one token, and ten seconds' worth at "
            "once; 0 for any number.",
        ),
    ] = 0.0,
    address_rate: Annotated[float, setting("address-rate", min=0, help="The same from one network address.")] = 0.0,
    proxies: Annotated[
        int,
        setting(
            "proxies",
            min=0,
            help="How many proxies stand in front of the server. For --address-rate, the sender's address is then the "
            "one so many places from the end of X-Forwarded-For.",
        ),
    ] = 0,
    config: Config = None,
) -> None:
    """Collect records over HTTP and keep none of them.

    Each setting may be a flag, an environment variable, or a line of the file that --config names. A flag wins over
    the environment, and the environment over the file.
    """
    from foldaway.forgetting.harden import MARK

    # Until it serves, control-C ends it at once: in the middle of compiling, an exception becomes an error of LLVM's.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if not quiet and MARK not in os.environ:
        print("Loading and compiling kernels …", flush=True)  # seconds, and after an upgrade up to a minute
    with extra():
        from foldaway.service.http.rates import Rates
        from foldaway.service.server import Settings, serve

    serve(
        Settings(
            data,
            database,
            host,
            port,
            shard,
            key_file,
            certificate,
            certificate_key,
            max_body * 2**20,
            queue,
            patience,
            quiet,
            database_password_file,
            admin_token,
            admin_token_file,
            version_keys,
            tick,
            allow_origin or (),
            Rates(token_rate, address_rate, proxies),
        )
    )


@app.command()
def key(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to write it; - prints it, for FOLDAWAY_KEY.")],
) -> None:
    """Create a key with which a server encrypts its trials. Keep it apart from the data, and do not lose it."""
    with extra():
        from foldaway.service.keys.master_key import make_key_file, new_key

    if file == "-":
        print(new_key())
        return
    make_key_file(Path(file), known=False)
    print(f"A new key is in {file}; only its owner can read it.")


@app.command()
def rotate(
    data: Data = None,
    database: Database = None,
    key_file: KeyFile = None,
    database_password_file: PasswordFile = None,
    version_keys: VersionKeys = None,
    config: Config = None,
) -> None:
    """Encrypt everything that is stored under a new key."""
    with extra():
        from foldaway.service.database.store import rotate_key
        from foldaway.service.server import Settings, open_store

    settings = Settings(
        data, database, key_file=key_file, password_file=database_password_file, version_keys=version_keys
    )
    rotate_key(open_store(settings))
    print("Everything stored is now encrypted under a new key; the old one is gone.")
