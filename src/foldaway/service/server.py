"""Starting the server: hardened process, database, first token, uvicorn."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import uvicorn

from foldaway.account.pace import TICK, Pace
from foldaway.errors import FoldawayError, instead_of
from foldaway.federated.summands.sealing import Role
from foldaway.forgetting.harden import harden, settle
from foldaway.forgetting.rehearsal import rehearse
from foldaway.keeping.disk import replace_file
from foldaway.keeping.locks import locked
from foldaway.keeping.planted import require_own
from foldaway.service.collecting.pair import Pair
from foldaway.service.collecting.service import Service
from foldaway.service.database.moved import require_unmoved
from foldaway.service.database.store import Store
from foldaway.service.http.app import make_app
from foldaway.service.http.connections import Connection, most_connections
from foldaway.service.http.monitoring import catch_library_logs, log
from foldaway.service.http.origins import exact_origins
from foldaway.service.http.rates import UNLIMITED, Rates
from foldaway.service.keys.server_key import read_server_key
from foldaway.service.keys.tokens import Wanted, new_token
from foldaway.service.keys.vault import Vault
from foldaway.sources.formats.body import Limits

PASSWORD = "FOLDAWAY_DATABASE_PASSWORD"
ADMIN_TOKEN = "admin.token"

_EXPORT = "For the other commands, export the address as FOLDAWAY_SERVER and the token as FOLDAWAY_TOKEN."


@dataclass(frozen=True)
class Settings:
    """Where and how to serve."""

    data: Path | None = None
    database: str | None = None
    host: str = "127.0.0.1"
    port: int = 8321
    shard: str | None = None
    key_file: Path | None = None
    certificate: Path | None = None
    certificate_key: Path | None = None
    max_body: int = 32 * 2**20
    queue: int = 64
    patience: float = 60.0
    quiet: bool = False
    password_file: Path | None = None
    admin_token: str | None = None
    admin_token_file: Path | None = None
    version_keys: Path | None = None
    tick: float = TICK
    origins: Sequence[str] = ()
    rates: Rates = UNLIMITED
    role: Role | None = None


def serve(settings: Settings) -> None:
    """Serve until told to stop. Starts the process anew, once, in an environment where freed memory is overwritten."""
    _place(settings)  # what can be known to be wrong before anything is opened or loaded
    exact_origins(settings.origins)
    pair_of(settings)
    if (settings.certificate is None) != (settings.certificate_key is None):
        raise FoldawayError("https needs both --certificate and --certificate-key.")
    if settings.certificate_key is not None:
        require_own(settings.certificate_key, FoldawayError)
    for sentence in harden():
        log("not hardened", "warning", reason=sentence)
    catch_library_logs()
    with alone(settings):
        _serve(settings)


def _serve(settings: Settings) -> None:
    listener = _listen(settings.host, settings.port)
    for sentence in _in_the_clear(settings, listener.getsockname()[0]):
        log("not encrypted", "warning", reason=sentence)
    store = open_store(settings)
    rehearse()
    settle()
    shard = settings.shard or (socket.gethostname() if settings.database else "main")
    service = Service(store, shard, Limits(max_body=settings.max_body), Pace(settings.tick), pair_of(settings))
    app = make_app(
        service,
        quiet=settings.quiet,
        most_queued=settings.queue,
        patience=settings.patience,
        origins=exact_origins(settings.origins),
        rates=settings.rates,
    )
    Connection.most = most_connections()
    config = uvicorn.Config(
        cast(Any, app),
        http=Connection,
        loop="asyncio",  # with uvloop, pieces of requests stay in memory after the answer
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # `rates` alone asks for the client's address
        timeout_graceful_shutdown=20,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.certificate_key,
    )
    unusable = "the certificate or its key cannot be used: {}."
    # ssl.SSLError is an OSError too.
    with instead_of(OSError, lambda error: FoldawayError(unusable.format(error.strerror or type(error).__name__))):
        config.load()
    server = _stopping(uvicorn.Server(config))
    # Last, so that no start that fails or is stopped stores a token that nobody has seen.
    _say_hello(settings, admit(settings, store), listener.getsockname()[1])
    server.run([listener])
    log("stopped")


def alone(settings: Settings) -> ExitStack:
    """One server at a time on a folder: two would each take the other's share of a trial for their own.

    The lock ends with the process, however that ends, so that a server that was killed can start again at once.
    """
    held, folder = ExitStack(), settings.data
    if settings.database is None and folder is not None:
        taken = FoldawayError(
            f"another server is using {folder}, and a folder serves only one. Stop that server first; or run several "
            "on one PostgreSQL database, with --database postgresql://… and a --shard name for each."
        )
        unusable = f"the folder {folder} cannot be used: {{}}."
        with instead_of(OSError, lambda error: FoldawayError(unusable.format(error.strerror))):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            held.enter_context(locked(folder / "server", taken))
    return held


def _stopping(server: uvicorn.Server) -> uvicorn.Server:
    """It runs until SIGTERM or SIGINT: then what is under way is answered, and what may be stored is."""

    def stop(*_: object) -> None:
        server.should_exit = True

    # uvicorn has handlers of its own while it runs, and at the end raises the signal again for those before it: with
    # the usual ones the process would die of it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return server


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address, family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number and number > 0 else str(error)
    raise FoldawayError(f"cannot listen on {host}:{port}: {reason}. Choose another with --host and --port.")


def _in_the_clear(settings: Settings, address: str) -> list[str]:
    """A warning, if what others send to this address can be read on its way."""
    if settings.certificate is not None or ipaddress.ip_address(address).is_loopback:
        return []
    return [
        "other machines can reach this address, and records and tokens travel to it in the clear: give --certificate "
        "and --certificate-key, or let nobody but a proxy with TLS reach it."
    ]


def open_store(settings: Settings, *, new: bool = True) -> Store:
    """The database, and the key that opens what is in it; a folder without one is refused unless it may be new."""
    place = _place(settings)
    if not new and settings.database is None and settings.data and not (settings.data / "foldaway.db").is_file():
        raise FoldawayError(f"there are no trials in {settings.data}.")
    if settings.database is None and settings.data is not None:
        require_unmoved(settings.data)  # before its key is asked for
    return Store.open(place, open_vault(settings), password_of(settings), settings.version_keys)


def pair_of(settings: Settings) -> Pair | None:
    """This server as one of two, if it has a role."""
    if settings.role is None:
        return None
    if settings.data is None or settings.database is not None:
        raise FoldawayError("--role needs --data FOLDER: a leader or helper is a single server, on a folder.")
    return Pair(settings.role, read_server_key(settings.data))


def open_vault(settings: Settings) -> Vault:
    """The master keys."""
    return Vault.open(settings.data, settings.key_file, os.environ)


def password_of(settings: Settings) -> str | None:
    """The database's password, if it is not in its address: any user of the machine can read a command line."""
    if settings.password_file is None:
        return os.environ.get(PASSWORD)
    return _text_of(settings.password_file, "the database's password")


def _text_of(file: Path, what: str) -> str:
    require_own(file, FoldawayError)
    with instead_of(OSError, lambda error: FoldawayError(f"{what} in {file} cannot be read: {error.strerror}.")):
        return file.read_text(encoding="utf-8").rstrip("\r\n")


def _place(settings: Settings) -> str | Path:
    if settings.database is not None:
        return settings.database
    if settings.data is None:
        raise FoldawayError("say where to keep the trials: --data FOLDER, or --database URL.")
    return settings.data


def admit(settings: Settings, store: Store) -> list[str]:
    """Make sure that somebody may administer the server; what to tell whoever starts it.

    A token that was preset is taken as it is. Otherwise the first token of a new database is shown at a terminal, and
    written to a file where standard output is the log of a container.
    """
    file, tokens = settings.admin_token_file, store.tokens
    preset = settings.admin_token or (_text_of(file, "the admin token") if file and file.exists() else None)
    if preset is not None:
        tokens.adopt(preset)
        return []
    if tokens.admins():
        return []
    if file is None and sys.stdout.isatty():
        return [f"admin token, shown this once: {tokens.issue(Wanted('admin'))[1]}", _EXPORT]
    if file is None and settings.data is not None:
        file = settings.data / ADMIN_TOKEN
    if file is None:
        return [
            "Nobody has an admin token yet: issue one with `foldaway token issue admin --database URL`, or preset "
            "FOLDAWAY_ADMIN_TOKEN."
        ]
    text, unwritten = new_token(), "the admin token {} cannot be written: {}."
    with instead_of(OSError, lambda error: FoldawayError(unwritten.format(file, error.strerror))):
        replace_file(file, f"{text}\n".encode(), private=True)
    tokens.adopt(text)  # only now: a token that nobody can read would lock everybody out
    return [f"The admin token is in {file}, which only its owner can read.", _EXPORT]


def _say_hello(settings: Settings, sentences: list[str], port: int) -> None:
    scheme = "https" if settings.certificate else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    print("\n".join([f"Listening on {scheme}://{host}:{port}", *sentences]), flush=True)
