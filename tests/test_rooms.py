"""Imports point one way: a room uses the rooms after it in `ROOMS`, never one before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "foldaway"
SOURCE = Path(__file__).parents[1] / "src" / PACKAGE

# `import foldaway` itself. It gathers what users need, so it may import any room; only the rooms that are
# written as a user would write them, from the command line down to the demo, may come back in through it.
FRONT_DOOR = "__init__"

# A room is a module or a folder right under src/foldaway. From the street to the cellar:
ROOMS = (
    "__main__",
    "cli",
    "service",
    "client",
    "federated",
    "asking",
    "engines",
    "sources",
    "datasets",
    FRONT_DOOR,
    "trial",
    "analysis",
    "effects",
    "report",
    "least_squares",
    "inference",
    "tallies",
    "records",
    "plan",
    "table",
    "kernels",
    "paper",
    "batch",
    "linalg",
    "secret",
    "threads",
    "block",
    "saved",
    "state",
    "disk",
    "errors",
)


class Import(NamedTuple):
    line: int
    room: str


def room_of(module: str) -> str:
    """The room of a dotted name in the package: `foldaway.tallies.arm` is in `tallies`."""
    _, _, inside = module.partition(".")
    return inside.split(".")[0] or FRONT_DOOR


def is_ours(module: str) -> bool:
    return module == PACKAGE or module.startswith(f"{PACKAGE}.")


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def running_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below, at any depth, that is there when the program runs."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and is_type_checking(child.test):
            for statement in child.orelse:
                yield statement
                yield from running_nodes(statement)
        else:
            yield child
            yield from running_nodes(child)


def named_modules(node: ast.AST, package: str) -> Iterator[str]:
    """The modules one node imports; `package` is where a relative import starts."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parents = package.split(".")
            base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [base])])
        # `from foldaway import plan` enters the room, `from foldaway import Plan` the front door.
        if base == PACKAGE:
            yield from (f"{base}.{a.name}" if a.name in ROOMS else base for a in node.names)
        else:
            yield base
    elif isinstance(node, ast.Call) and node.args:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        name = node.args[0]
        if called in {"import_module", "__import__"} and isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield name.value


def imports(source: str, package: str) -> list[Import]:
    """The rooms that a module's source imports from, wherever in the file it does so."""
    return [
        Import(getattr(node, "lineno", 0), room_of(module))
        for node in running_nodes(ast.parse(source))
        for module in named_modules(node, package)
        if is_ours(module)
    ]


def faults(source: str, module: str, package: str) -> list[str]:
    """What is wrong with a module's imports, one sentence each."""
    room = room_of(module)
    if room not in ROOMS:
        return [
            f"{module} is in no room: add {room!r} to ROOMS in tests/test_rooms.py, after every room that "
            "uses it and before every room it uses, and to the map in CONTRIBUTING.md."
        ]
    if room == FRONT_DOOR:
        return []
    found = []
    for line, target in imports(source, package):
        if target not in ROOMS:
            found.append(f"{module}, line {line}: imports from {target!r}, which is in no room.")
        elif ROOMS.index(target) < ROOMS.index(room):
            found.append(f"{module}, line {line}: {room!r} imports {target!r}, which is a room above it.")
    return found


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).parts[:-1])


MODULES = sorted(SOURCE.rglob("*.py"))


def test_there_are_modules_to_check() -> None:
    assert MODULES


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_one_way(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8"), module_name(path), package_name(path)) == []


# The checker itself, on made-up modules: it must be able to say no.

UPWARD = [
    "import foldaway.trial",
    "import numpy, foldaway.trial as t",
    "from foldaway.trial import Trial",
    "from foldaway import trial",
    "from foldaway import Trial",
    "import foldaway as fa",
    "from ..trial import Trial",
    "from .. import trial",
    "def later():\n    from foldaway.trial import Trial",
    "class C:\n    def f(self):\n        if self:\n            import foldaway.trial",
    "try:\n    import foldaway.trial\nexcept ImportError:\n    pass",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import foldaway.trial",
    "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    import foldaway.trial",
    "import importlib\nimportlib.import_module('foldaway.trial')",
]

ONE_WAY = [
    "from foldaway.tallies.vech import lift",
    "from .vech import lift",
    "from . import vech",
    "from foldaway.errors import StateError",
    "from ..errors import StateError",
    "from foldaway import block",
    "import foldawayer, trial, numpy",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from foldaway.trial import Trial",
    "import typing\nif typing.TYPE_CHECKING:\n    import foldaway.trial",
    "text = 'import foldaway.trial'",
]


@pytest.mark.parametrize("source", UPWARD)
def test_an_import_from_a_room_above_is_a_fault(source: str) -> None:
    assert len(faults(source, "foldaway.tallies.factor", "foldaway.tallies")) == 1


@pytest.mark.parametrize("source", ONE_WAY)
def test_an_import_from_the_same_room_or_below_is_none(source: str) -> None:
    assert faults(source, "foldaway.tallies.factor", "foldaway.tallies") == []


def test_a_fault_names_module_line_and_rooms() -> None:
    (fault,) = faults("import numpy\nimport foldaway.cli\n", "foldaway.plan", "foldaway")
    assert fault == "foldaway.plan, line 2: 'plan' imports 'cli', which is a room above it."


def test_each_wrong_import_is_a_fault_of_its_own() -> None:
    source = "import foldaway.cli\nfrom foldaway.trial import Trial\n"
    assert len(faults(source, "foldaway.plan", "foldaway")) == 2


def test_a_module_in_no_room_is_told_where_to_register() -> None:
    (fault,) = faults("", "foldaway.attic.chest", "foldaway.attic")
    assert "'attic'" in fault
    assert "tests/test_rooms.py" in fault


def test_an_import_from_no_room_is_a_fault() -> None:
    assert len(faults("import foldaway.attic", "foldaway.cli", "foldaway")) == 1


def test_the_front_door_may_use_every_room() -> None:
    assert faults("from foldaway.trial import Trial", "foldaway", "foldaway") == []


def test_only_rooms_above_the_front_door_come_in_through_it() -> None:
    source = "import foldaway as fa"
    assert faults(source, "foldaway.datasets", "foldaway") == []
    assert len(faults(source, "foldaway.trial", "foldaway")) == 1
