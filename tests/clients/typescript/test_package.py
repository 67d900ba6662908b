"""The npm package: small, without addresses, and with nothing that it needs at run time but for mode shares."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

from node_package import SOURCE, node_tests

PACKAGE = SOURCE / "typescript"

# Of all its JavaScript together, as it is published: with comments, and not minified.
MOST_BYTES = 20_000


def test_it_is_small(node_package: Path) -> None:
    scripts = sorted((node_package / "dist/src").rglob("*.js"))
    assert len(scripts) > 10
    assert len(gzip.compress(b"".join(script.read_bytes() for script in scripts))) < MOST_BYTES


def test_its_lock_file_has_hashes_and_no_address() -> None:
    text = (PACKAGE / "package-lock.json").read_text()
    assert not re.search(r"resolved|://", text)
    packages = json.loads(text)["packages"]
    assert all("integrity" in pinned for name, pinned in packages.items() if name)
    assert (PACKAGE / ".npmrc").read_text() == "omit-lockfile-registry-resolved=true\n"


def test_it_needs_one_package_for_shares_alone_and_pins_all(node_package: Path) -> None:
    package = json.loads((PACKAGE / "package.json").read_text())
    assert list(package["dependencies"]) == ["@hpke/core"]
    versions = [*package["dependencies"].values(), *package["devDependencies"].values()]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions)
    loading = [script for script in (node_package / "dist/src").rglob("*.js") if "@hpke/core" in script.read_text()]
    assert [script.name for script in loading] == ["shares.js"]
    assert 'await import("@hpke/core")' in loading[0].read_text()


def test_it_computes_what_the_vectors_say_and_a_changed_vector_fails(node_package: Path) -> None:
    assert "# pass 16" in node_tests(node_package, "vectors")
