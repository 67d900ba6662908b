"""Imports point one way: a room, and a folder within a room, uses those after it in `ROOMS`, never one before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "foldaway"
SOURCE = Path(__file__).parents[1] / "src" / PACKAGE

# `import foldaway` itself. It gathers what users need, so it may import any room; only the rooms that are
# written as a user would write them, from the command line down to the demo, may come back in through it.
FRONT_DOOR = "__init__"

# A module whose name only a run knows could be any. These reach for packages of others so.
OF_OTHERS = {"foldaway.effects.to_sql", "foldaway.sources.brokers.broker"}

# A room is a module or a folder under src/foldaway. A module belongs to the longest entry that its path begins with, so
# `service` alone is what lies right in that folder. From the street to the cellar:
ROOMS = (
    "__main__",
    "cli",
    "cli/commands",
    "cli/terminal",
    "simulation",
    "service",
    "service/http",
    "service/collecting",
    "service/database",
    "service/keys",
    "federated",
    "federated/site",
    "federated/coordinator",
    "federated/modes",
    "federated/replies",
    "federated/summands",
    "federated/link",
    "federated/messages",
    "client",
    "asking",
    "forgetting",
    "engines/spark",
    "engines/dask",
    "engines/sql",
    "engines",
    "sources/query",
    "sources/brokers",
    "sources/runs",
    "sources/formats",
    "sources",
    FRONT_DOOR,
    "account",
    "calibrating",
    "trial",
    "least_squares",
    "planning",
    "dossier",
    "report/page",
    "report/drawing",
    "report",
    "auditing",
    "effects",
    "inference",
    "tallies",
    "tallies/moments",
    "records",
    "plan",
    "table",
    "paper",
    "numerics/kernels",
    "numerics",
    "keeping",
    "evidence",
    "lending",
    "connection",
    "backoff",
    "errors",
)


class Import(NamedTuple):
    line: int
    module: str


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def room_of(module: str) -> str | None:
    """The room of a dotted name in the package: `foldaway.service.http.app` is in `service/http`."""
    inside = module.split(".")[1:]
    if not inside:
        return FRONT_DOOR
    entries = ("/".join(inside[:depth]) for depth in range(len(inside), 0, -1))
    return next((entry for entry in entries if entry in ROOMS), None)


def is_ours(module: str) -> bool:
    return module == PACKAGE or module.startswith(f"{PACKAGE}.")


def named_modules(node: ast.AST) -> Iterator[str]:
    """The modules that one node imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        # `from foldaway import plan` enters the room, `from foldaway import Plan` the front door.
        base = node.module or ""
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            yield inner if inner in MODULES or (base == PACKAGE and alias.name in ROOMS) else base
    elif (name := named(node)) is not None and isinstance(name, ast.Constant) and isinstance(name.value, str):
        yield name.value


def named(node: ast.AST) -> ast.expr | None:
    """The name by which a node reaches for a module while the program runs, if it does."""
    if isinstance(node, ast.Call) and node.args:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        among_modules = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "sys.modules"
        return node.args[0] if called in {"import_module", "__import__"} or among_modules else None
    return node.slice if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "sys.modules" else None


def is_known(name: ast.expr) -> bool:
    """Whether a name is written out, or goes on from that of the module itself."""
    return isinstance(name, ast.Constant) or ast.unparse(name).startswith("f'{__name__}.")


def imports(source: str) -> list[Import]:
    """What a module's source imports of ours, wherever in the file, under TYPE_CHECKING too."""
    found = {
        (getattr(node, "lineno", 0), module)
        for node in ast.walk(ast.parse(source))
        for module in named_modules(node)
        if is_ours(module)
    }
    return [Import(*each) for each in sorted(found)]


def faults(source: str, module: str) -> list[str]:
    """What is wrong with a module's imports, one sentence each."""
    room = room_of(module)
    if room is None:
        return [
            f"{module} is in no room: add it to ROOMS in tests/test_rooms.py, after every room that uses it and "
            "before every room it uses, and to the map in CONTRIBUTING.md."
        ]
    if room == FRONT_DOOR:
        return []
    found = []
    for line, imported in imports(source):
        target = room_of(imported)
        if target is None:
            found.append(f"{module}, line {line}: imports {imported}, which is in no room.")
        elif ROOMS.index(target) < ROOMS.index(room):
            found.append(f"{module}, line {line}: {room!r} imports {imported}, and {target!r} is a room above it.")
    nodes = list(ast.walk(ast.parse(source)))
    if module not in OF_OTHERS and not all(is_known(name) for node in nodes if (name := named(node)) is not None):
        found.append(f"{module}: a module's name is put together as it runs; write it out, or see `foldaway.lending`.")
    if any(isinstance(node, ast.ImportFrom) and node.level for node in nodes):
        found.append(f"{module}: imports are written in full, from `{PACKAGE}`.")
    return found


def cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """A way from a module back to itself, or nothing."""
    done: set[str] = set()
    way: list[str] = []

    def follow(module: str) -> list[str]:
        if module in way:
            return [*way[way.index(module) :], module]
        if module in done:
            return []
        way.append(module)
        for other in sorted(graph.get(module, ())):
            if around := follow(other):
                return around
        done.add(way.pop())
        return []

    return next((around for module in sorted(graph) if (around := follow(module))), [])


def import_graph() -> dict[str, set[str]]:
    """Which module imports which, the front door left out: it imports everything."""
    sources = {module: path.read_text(encoding="utf-8") for module, path in MODULES.items() if module != PACKAGE}
    return {module: {i.module for i in imports(source)} - {PACKAGE, module} for module, source in sources.items()}


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module: str) -> None:
    assert faults(MODULES[module].read_text(encoding="utf-8"), module) == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert cycle(import_graph()) == []


def test_every_room_is_there() -> None:
    inside = {room_of(module) for module in MODULES}
    assert inside == set(ROOMS)


# The checker itself, on made-up modules: it must be able to say no.

UPWARD = [
    "import foldaway.trial",
    "import numpy, foldaway.trial as t",
    "from foldaway.trial import Trial",
    "from foldaway import trial",
    "from foldaway import Trial",
    "import foldaway as fa",
    "def later():\n    from foldaway.trial import Trial",
    "class C:\n    def f(self):\n        if self:\n            import foldaway.trial",
    "try:\n    import foldaway.trial\nexcept ImportError:\n    pass",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from foldaway.trial import Trial",
    "import importlib\nimportlib.import_module('foldaway.trial')",
    "import importlib\nimportlib.import_module(f'foldaway.{above}')",
    "__import__('.'.join(['foldaway', above]))",
    "import sys\nsys.modules['foldaway.trial']",
    "import sys\nsys.modules.get(f'{__package__}.trial')",
    "from . import vech",
    "import foldaway.attic",
]

ONE_WAY = [
    "from foldaway.tallies.moments.vech import lift",
    "from foldaway.tallies.moments import vech",
    "from foldaway.errors import StateError",
    "from foldaway import errors",
    "import foldawayer, trial, numpy",
    "text = 'import foldaway.trial'",
    "import importlib\nimportlib.import_module(f'{__name__}.{inside}')",
    "import sys\nsys.modules.get('pandas')",
]


@pytest.mark.parametrize("source", UPWARD)
def test_an_import_from_a_room_above_is_a_fault(source: str) -> None:
    assert len(faults(source, "foldaway.tallies.moments.factor")) == 1


@pytest.mark.parametrize("source", ONE_WAY)
def test_an_import_from_the_same_room_or_below_is_none(source: str) -> None:
    assert faults(source, "foldaway.tallies.moments.factor") == []


def test_folders_within_a_room_have_an_order_too() -> None:
    source = "from foldaway.service.http.app import make_app"
    assert faults(source, "foldaway.service.server") == []
    assert len(faults(source, "foldaway.service.database.store")) == 1


def test_a_fault_names_module_line_and_rooms() -> None:
    (fault,) = faults("import numpy\nimport foldaway.cli\n", "foldaway.plan")
    assert fault == "foldaway.plan, line 2: 'plan' imports foldaway.cli, and 'cli' is a room above it."


def test_each_wrong_import_is_a_fault_of_its_own() -> None:
    source = "import foldaway.cli\nfrom foldaway.trial import Trial\n"
    assert len(faults(source, "foldaway.plan")) == 2


def test_a_module_in_no_room_is_told_where_to_register() -> None:
    (fault,) = faults("", "foldaway.attic.chest")
    assert "foldaway.attic.chest" in fault
    assert "tests/test_rooms.py" in fault


def test_the_front_door_may_use_every_room_and_is_entered_from_above_only() -> None:
    assert faults("from foldaway.trial import Trial", "foldaway") == []
    assert faults("import foldaway as fa", "foldaway.simulation.datasets") == []
    assert len(faults("import foldaway as fa", "foldaway.trial")) == 1


def test_a_cycle_is_found_and_told() -> None:
    assert cycle({"a": {"b"}, "b": {"c", "d"}, "d": {"a"}}) == ["a", "b", "d", "a"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}}) == []
