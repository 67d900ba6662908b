"""States that `foldaway run` is given in place of records: trials that ran separately, merged into one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import foldaway as fa
from foldaway.cli.terminal.saved_trial import file_of, is_state
from foldaway.errors import SourceError, StateError
from foldaway.sources.formats.paths import Stdin, expand


def states_among(patterns: Sequence[str]) -> list[Path]:
    """The files of the states that the patterns name; none if they name files of records.

    Args:
        patterns: Names or globs of files, and folders of stores.

    Raises:
        SourceError: They name both states and files of records.
    """
    folders = [Path(pattern) for pattern in patterns if (Path(pattern) / "state").is_file()]
    if not folders and not any(_matches_a_state(pattern) for pattern in patterns):
        return []
    others = [pattern for pattern in patterns if Path(pattern) not in folders]
    files = expand(others) if others else []
    for file in files:
        if isinstance(file, Stdin) or not is_state(file):
            raise SourceError(f"{file} is no state: merge states in one run, and fold records in another.")
    return [*map(file_of, folders), *(file for file in files if isinstance(file, Path))]


def _matches_a_state(pattern: str) -> bool:
    """Whether the first of the files that a pattern names is a state."""
    if pattern == "-" or Path(pattern).is_dir():
        return False
    try:
        first = expand([pattern])[0]
    except SourceError:  # which the run says if it needs the file: a backlog may have deleted it
        return False
    return isinstance(first, Path) and first.is_file() and is_state(first)


def merged(plan: fa.Plan, states: Sequence[Path], key: bytes | None) -> fa.Trial:
    """The tallies of all states as one trial.

    Raises:
        StateError: Two files are one state, whose records would count twice, or a state is not of this plan.
    """
    seen = dict[bytes, Path]()
    whole = None
    for path in states:
        part = fa.Trial.load(path, plan, key=key)
        if twin := seen.get(data := part.dumps()):
            raise StateError(f"{path} and {twin} are the same state; merging it twice would count its records twice.")
        seen[data] = path
        whole = part if whole is None else whole.merge(part)
    assert whole is not None
    return whole
