"""``foldaway serve``: a server that collects records."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated, Literal

import typer

from foldaway.cli.terminal.connecting import extra
from foldaway.cli.terminal.server_settings import Config, Data, Database, KeyFile, PasswordFile, VersionKeys, setting

app = typer.Typer()


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
            help="An admin token of your own, from `foldaway token issue admin --preset`. Do not give it on the "
            "command line, where others can read it.",
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
    role: Annotated[
        Literal["leader", "helper"] | None,
        setting(
            "role",
            help='What this server is in trials of mode "shares": the leader, to which devices send, or the helper. '
            "`foldaway key new-server` makes its keys.",
        ),
    ] = None,
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
            role,
        )
    )
