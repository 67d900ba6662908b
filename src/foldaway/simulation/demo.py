"""The tour: a simulated trial, folded away, beside an analysis that kept every row."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foldaway import Effects, Plan
from foldaway.numerics.block import Block, Floats
from foldaway.records.batch import Batch
from foldaway.simulation.datasets import checkout
from foldaway.sources.runs.folding import OnBytes, fold_files
from foldaway.table import number, text_table

Showing = Callable[[Sequence[Path]], AbstractContextManager[OnBytes]]

PLAN = Plan(
    name="checkout-button",
    arm="variant",
    arms={"control": 0.5, "treatment": 0.5},
    outcomes=["revenue", "converted"],
    covariates=["revenue_before", "country"],
    levels={"country": ["de", "fr", "us"]},
    unit="user_id",
)


def demonstrate(records: int, seed: int, showing: Showing) -> None:
    """Simulate, fold, compare, and count what is still held.

    Args:
        records: How many records to simulate.
        seed: The simulation's seed.
        showing: Shows how far the files have been folded, while they are.
    """
    print(f"A trial of {records:,} simulated records, folded from a Parquet file batch by batch.\n")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "checkout.parquet")
        _write(file, records, seed)
        with showing([file]) as progress:
            trial = fold_files(str(file), PLAN, progress=progress)
    # The file is gone now; what follows is read from the tallies.
    effects = trial.effects()
    print(effects)
    print("\nThe same from an analysis that kept every row (NumPy, HC1 errors):\n")
    print(_comparison(effects, records, seed))
    print(f"\nRecords still held by foldaway: {_held()}. Its state is {len(trial.dumps()):,} bytes, and would be")
    print("the same size after a billion records.")


def _write(file: Path, records: int, seed: int) -> None:
    writer = None
    for batch in checkout(records, seed=seed):
        writer = writer or pq.ParquetWriter(file, batch.schema)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


def _comparison(effects: Effects, records: int, seed: int) -> str:
    rows = pa.Table.from_batches(list(checkout(records, seed=seed)))
    cells = []
    for outcome in PLAN.outcomes:
        ours = effects.filter(outcome=outcome, estimator="regression", se_kind="HC1")[0]
        estimate, error = _kept_rows(rows, outcome)
        difference = max(abs(ours.estimate / estimate - 1), abs(ours.std_error / error - 1))
        cells += [
            [outcome, "foldaway", number(ours.estimate, 10), number(ours.std_error, 10), ""],
            ["", "all rows kept", number(estimate, 10), number(error, 10), f"{difference:.0e}"],
        ]
    return text_table(["outcome", "analysis", "effect", "std. error", "relative difference"], cells, left=2)


def _kept_rows(rows: pa.Table, outcome: str) -> tuple[float, float]:
    """The regression on all rows at once, with HC1 errors, by the textbook."""

    def column(name: str) -> Floats:
        values: Floats = rows[name].to_numpy().astype(np.float64)
        return values

    country = rows["country"].to_numpy()
    treated = (rows["variant"].to_numpy() == "treatment").astype(float)
    levels = [(country == level).astype(float) for level in ("fr", "us")]
    X = np.column_stack([np.ones(len(treated)), treated, column("revenue_before"), *levels])
    y = column(outcome)
    coef = np.linalg.lstsq(X, y, rcond=None)[0]
    residual = y - X @ coef
    bread = np.linalg.inv(X.T @ X)
    n, k = X.shape
    covariance = bread @ (X.T * residual**2 @ X) @ bread * n / (n - k)
    return float(coef[1]), float(np.sqrt(covariance[1, 1]))


def _held() -> str:
    """Counted, not asserted: batches and blocks of records that Python still knows of."""
    gc.collect()
    held = sum(isinstance(thing, Batch | Block) for thing in gc.get_objects())
    return "none" if not held else f"{held} blocks"
