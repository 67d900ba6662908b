"""Files folded into a trial, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from foldaway.errors import RecordError
from foldaway.plan import Plan
from foldaway.sources.batch import Wanted
from foldaway.sources.files import read
from foldaway.sources.paths import Stdin, expand
from foldaway.trial import Trial

Progress = Callable[[Path | Stdin, int], None]


def wanted_by(plan: Plan) -> Wanted:
    """The columns that a plan reads, by role.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], unit="id")
        >>> wanted_by(plan)
        Wanted(numeric=('y',), text=('group', 'id'))
    """
    categorical = [name for name in plan.covariates if name in plan.levels]
    numeric = [name for name in (*plan.outcomes, *plan.covariates, plan.weight) if name and name not in categorical]
    text = [name for name in (plan.arm, *categorical, plan.unit) if name]
    return Wanted(tuple(numeric), tuple(text))


def fold_files(
    patterns: str | Sequence[str],
    plan: Plan,
    *,
    into: Trial | None = None,
    format: str | None = None,
    progress: Progress | None = None,
) -> Trial:
    """Fold files into a trial, in bounded memory.

    Where the plan promises complete units, a file is one batch: all records of a unit must be in one file.

    Args:
        patterns: File names or globs; ``-`` for standard input.
        plan: The plan.
        into: A trial to go on with; a new one if left out. It is left as it was if a file is refused.
        format: csv, tsv, parquet, arrow or ndjson; by default the file's name or first bytes tell.
        progress: Called with a file and the bytes of it used so far.

    Returns:
        The trial with all records of the files in it.

    Raises:
        SourceError: A file cannot be read.
        RecordError: A batch was refused; the message names the file.
    """
    trial = Trial(plan) if into is None else into.copy()
    wanted = wanted_by(plan)
    for path in expand([patterns] if isinstance(patterns, str) else patterns):
        told = None if progress is None else (lambda used, path=path: progress(path, used))
        for batch in read(path, wanted, whole=plan.complete_units, format=format, progress=told):
            missing = [name for name in wanted.names if name not in batch.records.schema.names]
            if missing:
                hint = " Is it separated by commas, with the names in the first line?" if len(missing) > 1 else ""
                listed = ", ".join(map(repr, missing))
                raise RecordError(f"{path} has no column {listed}; nothing of it was folded.{hint}")
            refusal = _fold(trial, batch.records, batch.ragged)
            if refusal:
                raise RecordError(f"{path}: {refusal}")
    return trial


def _fold(trial: Trial, records: object, ragged: int) -> str | None:
    try:
        trial.fold(records, text=True, unreadable=ragged)
    except RecordError as error:
        return str(error)
    return None
