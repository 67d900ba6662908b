"""A made-up batch in every format, folded before the first real one."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa

from foldaway.plan import Bootstrap, Coefficients, Plan, Quantile
from foldaway.sources.formats.body import ARROW, JSON, NDJSON, Limits, decode
from foldaway.trial import Trial

_SUMS = Plan(
    name="rehearsal",
    arm="arm",
    arms={"a": 0.5, "b": 0.5},
    outcomes=["y"],
    covariates=["x"],
    unit="unit",
)
_MOMENTS = msgspec.structs.replace(_SUMS, moments={"bootstrap": 2})

# So many records at once go through loops that fewer do not.
_MANY = 100_000


def rehearse() -> None:
    """Load and compile what folding needs, which is done on first use: so that the first batch need not wait.

    Done before `harden.settle`, it also keeps all that out of every later search for garbage.

    Example:
        >>> rehearse()
    """
    trials = [Trial(plan, key=bytes(16)) for plan in (_SUMS, _MOMENTS)]
    rows = [{"arm": "ab"[i % 2], "unit": f"u{i}", "x": i % 7, "y": i % 11 + 0.5} for i in range(256)]
    for media_type, body in _bodies(pa.Table.from_pylist(rows)).items():
        for trial in trials:
            batch = decode(bytearray(body), media_type, None, trial.plan, Limits())
            trial.fold(batch.records, text=True, unreadable=batch.ragged)
    for trial in trials:
        trial.effects()


def compile_loops() -> None:
    """Compile the loops for many records as well, which else the first trial of that size has to wait for.

    For the installation of a server: numba's cache has them from then on.
    """
    rehearse()
    i = np.arange(_MANY)
    columns = {"arm": np.where(i % 2, "a", "b"), "unit": i.astype(str), "x": i % 7, "y": i % 11 + 0.5}
    fixed = Coefficients(center={"x": 3.0}, slopes={"y": {"x": 0.1}})
    for plan in (
        msgspec.structs.replace(_SUMS, outcomes=("y", Quantile("y", (0.5,), bounds=(0.1, 20.0)))),
        msgspec.structs.replace(_SUMS, coefficients=fixed),
        _MOMENTS,
        msgspec.structs.replace(_MOMENTS, moments={"bootstrap": Bootstrap(2, "double-or-nothing")}),
    ):
        Trial(plan, key=bytes(16)).fold(pa.table(columns))
    Trial(_SUMS, key=bytes(16)).fold(pa.table({**columns, "unit": i}))


def _bodies(table: pa.Table) -> dict[str, bytes]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    lines = msgspec.json.Encoder().encode_lines(table.to_pylist())
    return {ARROW: sink.getvalue().to_pybytes(), NDJSON: lines, JSON: msgspec.json.encode(table.to_pylist())}
