"""The tour: a simulated trial, folded away, beside an analysis that kept every row."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from foldaway import Effects, Mean, Plan, Trial
from foldaway.keeping.secret import LENGTH
from foldaway.numerics.block import Block, Floats
from foldaway.plan.groups import spread_of_error
from foldaway.records.batch import Batch
from foldaway.simulation.datasets import checkout
from foldaway.sources.runs.folding import OnBytes, fold_files
from foldaway.table import number, text_table

Showing = Callable[[Sequence[Path]], AbstractContextManager[OnBytes]]

PLAN = Plan(
    name="checkout-button",
    arm="variant",
    arms={"control": 0.5, "treatment": 0.5},
    outcomes=[Mean("revenue", better="higher"), Mean("converted", better="higher")],
    covariates=["revenue_before", {"column": "country", "levels": ["de", "fr", "us"]}],
    unit="user_id",
)


def demonstrate(records: int, seed: int, showing: Showing) -> Trial:
    """Simulate, fold while ``showing`` how far that is, compare, and count what is still held; the trial."""
    print(f"A trial of {records:,} simulated records, folded from a Parquet file batch by batch.\n")
    plan = msgspec.structs.replace(PLAN, expected_units=records)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "checkout.parquet")
        _write(file, records, seed)
        # Its key comes from the seed, so that the demo prints the same every time and leaves no key on the machine.
        key = seed.to_bytes(LENGTH, "little", signed=True)
        with showing([file]) as progress:
            trial = fold_files(str(file), plan, key=key, progress=progress)
    # The file is gone now; what follows is read from the tallies.
    effects = trial.effects()
    print(effects)
    rows = pa.Table.from_batches(list(checkout(records, seed=seed)))
    independent, clustered = _beside_kept(effects, rows)
    print("\nThe same from an analysis that kept every row (NumPy), for independent records:\n")
    print(independent)
    spread = 100 * spread_of_error(plan.groups)
    print(f"\nClustered by user: foldaway leaves out each of {plan.groups:,} groups of users in turn, the")
    print("analysis of kept rows adds up each user's residuals. The first varies by about")
    print(f"{spread:.0f} % with how users fall into groups; its t quantile allows for that.\n")
    print(clustered)
    print(f"\nRecords still held by foldaway: {_held()}. The state it saves is {len(trial.dumps()):,} bytes of")
    print("sums by group, without covariates, and would be the same size after a billion")
    print("records.")
    return trial


def _write(file: Path, records: int, seed: int) -> None:
    writer = None
    for batch in checkout(records, seed=seed):
        writer = writer or pq.ParquetWriter(file, batch.schema)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


def _beside_kept(effects: Effects, rows: pa.Table) -> tuple[str, str]:
    """Effects beside those of kept rows: with errors for independent records, and clustered by user."""
    independent, clustered = [], []
    _, user = np.unique(rows["user_id"].to_numpy().astype(str), return_inverse=True)
    for outcome in (each.name for each in PLAN.outcomes):
        for estimator in ("difference", "adjusted"):
            found = effects.filter(outcome=outcome, estimator=estimator)
            ours, by_user = (found.filter(se_kind=kind)[0] for kind in ("welch", "jackknife"))
            kept = KeptRows.of(rows, outcome, adjusted=estimator == "adjusted")
            error, error_by_user = kept.error(), kept.clustered_error(user)
            apart = max(abs(ours.estimate / kept.effect - 1), abs(ours.std_error / error - 1))
            further = f"{100 * (by_user.std_error / error_by_user - 1):+.0f} %"
            first = outcome if estimator == "difference" else ""
            independent += [
                [first, estimator, "foldaway", number(ours.estimate, 10), number(ours.std_error, 10), ""],
                ["", "", "all rows kept", number(kept.effect, 10), number(error, 10), f"{apart:.0e}"],
            ]
            clustered.append([first, estimator, number(by_user.std_error, 4), number(error_by_user, 4), further])
    headers = (
        ["outcome", "estimator", "analysis", "effect", "std. error", "differs by"],
        ["outcome", "estimator", "foldaway, jackknife", "all rows kept, CR1", "differs by"],
    )
    return text_table(headers[0], independent, left=3), text_table(headers[1], clustered, left=2)


class KeptRows(NamedTuple):
    """A regression on all rows at once, by the textbook: arms alone, or arms and covariates.

    Attributes:
        X: The design: an intercept, whether treated, covariates.
        residual: What it leaves of the outcome.
        effect: The coefficient of the treatment.
    """

    X: Floats
    residual: Floats
    effect: float

    @classmethod
    def of(cls, rows: pa.Table, outcome: str, *, adjusted: bool) -> KeptRows:
        """By least squares."""

        def column(name: str) -> Floats:
            values: Floats = rows[name].to_numpy().astype(np.float64)
            return values

        country = rows["country"].to_numpy()
        treated = (rows["variant"].to_numpy() == "treatment").astype(float)
        columns = [np.ones(len(treated)), treated]
        if adjusted:
            columns += [column("revenue_before"), *((country == level).astype(float) for level in ("fr", "us"))]
        X, y = np.column_stack(columns), column(outcome)
        coef = np.linalg.lstsq(X, y, rcond=None)[0]
        return cls(X, y - X @ coef, float(coef[1]))

    def error(self) -> float:
        """Welch's: each arm has a residual variance of its own, and pays twice for the slopes that it has chosen.

        Once because residuals of slopes fitted to them are too small, once because slopes vary.
        """
        arms = [self.X[:, 1] == arm for arm in (0, 1)]
        within = [self.X[arm, 2:] - self.X[arm, 2:].mean(axis=0) for arm in arms]
        products = [x.T @ x for x in within]
        variance = 0.0
        for arm, square in zip(arms, products, strict=True):
            n, chosen = int(arm.sum()), float(np.trace(np.linalg.solve(sum(products), square)))
            variance += self.residual[arm].var(ddof=1) / n * (n - 1) / (n - 1 - 2 * chosen)
        return float(np.sqrt(variance))

    def clustered_error(self, cluster: NDArray[np.intp]) -> float:
        """CR1: the residuals of a cluster stand together."""
        (n, k), clusters = self.X.shape, int(cluster.max()) + 1
        scores = np.column_stack([np.bincount(cluster, x * self.residual) for x in self.X.T])
        bread = np.linalg.inv(self.X.T @ self.X)
        covariance = bread @ (scores.T @ scores) @ bread * clusters / (clusters - 1) * (n - 1) / (n - k)
        return float(np.sqrt(covariance[1, 1]))


def _held() -> str:
    """Counted, not asserted: batches and blocks of records that Python still knows of."""
    gc.collect()
    held = sum(isinstance(thing, Batch | Block) for thing in gc.get_objects())
    return "none" if not held else f"{held} blocks"
