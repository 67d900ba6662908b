"""What is left of planted records in a minimal server that takes all the care foldaway can take."""

from __future__ import annotations

import datetime
import os
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from canary import PLAN, Batch, Report, batches, drop, report
from memory_scan import Marks

SERVER = Path(__file__).parents[1] / "canary_server.py"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root may read another process's memory"
)


@contextmanager
def serving(care: str, folder: Path, *certificate: str) -> Iterator[tuple[int, int]]:
    """The server's process and port; what it writes goes to a file."""
    temporary = folder / "temporary"
    temporary.mkdir()
    environ = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, str(SERVER), PLAN.to_json(), care, *certificate]
    with (folder / "logs").open("wb") as logs:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=logs, env=environ)
    try:
        assert server.stdout is not None
        yield server.pid, int(server.stdout.readline())
    finally:
        server.terminate()
        server.communicate()


def canary(
    care: str, folder: Path, certificate: tuple[str, str] | None = None
) -> tuple[Report, Counter[tuple[str, int]]]:
    marks = Marks(20_000)
    said: list[bytes] = []
    answers: Counter[tuple[str, int]] = Counter()
    trust = None if certificate is None else ssl.create_default_context(cafile=certificate[0])
    scheme = "http" if trust is None else "https"
    with serving(care, folder, *certificate or ()) as (pid, port):
        address = f"{scheme}://localhost:{port}"
        with httpx.Client(base_url=address, timeout=60, verify=True if trust is None else trust) as client:

            def send(batch: Batch) -> None:
                fail = {"fail": batch.kind} if batch.kind in ("inside", "after") else {}
                if batch.kind == "dropped":
                    drop(batch, port, "/records", {}, trust)
                    return
                answer = client.post("/records", content=batch.body, headers=batch.headers, params=fail)
                said.append(repr(answer.headers).encode() + answer.content)
                answers[batch.kind, answer.status_code] += 1

            for batch in batches(marks):
                send(batch)
            # The connection stays open, as those of real clients do.
            time.sleep(1)
            logs = (folder / "logs").read_bytes()
            found = report(
                marks,
                pid=pid,
                data=[folder],
                temporary=[folder / "temporary"],
                logs=logs,
                responses=b"".join(said),
            )
    assert logs.count(b"RuntimeError: forced") >= answers["inside", 500] + answers["after", 500] > 0
    return found, answers


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    today = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(folder / "certificate"), str(folder / "key")


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_hardly_a_number_is_left(secure: bool, tmp_path: Path, certificate: tuple[str, str]) -> None:
    found, answers = canary("hardened", tmp_path, certificate if secure else None)
    print(found)
    assert answers["good", 200] > 10
    assert answers["faulty", 422] > 5
    assert answers["cut", 400] > 5
    memory = found.places.pop("process memory")
    assert found.clean, str(found)
    # Single numbers stay in working memory of NumPy or of the libraries below it, without what belongs to them.
    assert len(memory.outcomes) <= found.planted / 1000, str(found)
    assert (memory.identifiers, memory.texts, memory.fragments) == (set(), set(), 0), str(found)


@pytest.mark.slow
def test_without_the_care_much_is_left(tmp_path: Path) -> None:
    found, _ = canary("usual", tmp_path)
    print(found)
    memory = found.places["process memory"]
    assert len(memory.identifiers) > 1000
    assert len(memory.outcomes) > 1000
