"""Folding into the arms of a trial: batches of records on all cores, clusters by their second moments.

Each worker folds a part of a large batch, and the parts are added.

A cluster's g_j = Σ_i (vech(x x'), x y) depends on its rows through their second moments alone, and the K rows of its
factor R_j (R_j'R_j = Σ_i z z') have the same ones. So these rows stand for the records, as a unit, and every tally of
units comes out as if the records themselves had been folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Block, Floats
from foldaway.numerics.threads import cores, on_threads, one_blas_thread
from foldaway.records.batch import Batch
from foldaway.tallies.arm import ArmTally

# With this many records, loading the compiled loops costs less than they save.
_WORTH_COMPILING = 100_000

# Below this many records per worker, starting it costs more than it saves.
_WORTH_A_WORKER = 40_000


def fold_batch(arms: Sequence[ArmTally], batch: Batch, workers: int | None = None) -> list[ArmTally]:
    """The arms' tallies with the batch taken in; the arms given are left as they were."""
    if len(batch) + sum(arm.n for arm in arms) >= _WORTH_COMPILING:
        batch = replace(batch, compiled=True)
    workers = min(workers or cores(), max(1, len(batch) // _WORTH_A_WORKER))
    with one_blas_thread():
        if workers == 1:
            return _fold_part(arms, batch, 0, len(batch))
        arms = [_with_frame(arm, number, batch) for number, arm in enumerate(arms)]
        folded = list(arms)
        for part in on_threads(
            lambda start, stop: _fold_part([arm.emptied() for arm in arms], batch, start, stop), batch.cuts(workers)
        ):
            folded = [have + more for have, more in zip(folded, part, strict=True)]
    return folded


def _fold_part(arms: Sequence[ArmTally], batch: Batch, start: int, stop: int) -> list[ArmTally]:
    folded = list(arms)
    for arm, block in batch.blocks(start, stop):
        folded[arm] = folded[arm].fold(block)
    return folded


def _with_frame(arm: ArmTally, number: int, batch: Batch) -> ArmTally:
    """The arm, with a frame from its first block if it has none yet: so that the workers share one."""
    if not arm.frame.n:
        for of, block in batch.blocks(0, min(len(batch), _WORTH_A_WORKER)):
            if of == number and len(block):
                return arm.fold(block).emptied()
    return arm


def fold_clusters(
    arms: Sequence[ArmTally], codes: NDArray[np.intp], counts: NDArray[np.int64], triangles: Floats
) -> list[ArmTally]:
    """The arms with the clusters taken in.

    Args:
        arms: The tallies.
        codes: Each cluster's arm.
        counts: Each cluster's number of records.
        triangles: Each cluster's factor: J by K by K.
    """
    return [
        arm.fold(_block(counts[codes == a], triangles[codes == a])) if np.any(codes == a) else arm
        for a, arm in enumerate(arms)
    ]


def _block(counts: NDArray[np.int64], triangles: Floats) -> Block:
    clusters, K, _ = triangles.shape
    rows = triangles.reshape(clusters * K, K)
    unit = np.repeat(np.arange(clusters), K)
    # Few records leave empty rows below theirs.
    used = np.logical_or(rows.any(axis=1), np.arange(len(rows)) % K == 0)
    return Block(np.ascontiguousarray(rows[used].T), unit=unit[used], stands_for=int(counts.sum()))
