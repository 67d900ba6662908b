"""Folding clusters of which only the second moments have come: each as the triangular factor of its rows.

A cluster's g_j = Σ_i (vech(x x'), x y) depends on its rows through their second moments alone, and the K rows of its
factor R_j (R_j'R_j = Σ_i z z') have the same ones. So these rows stand for the records, as a unit, and every tally of
units comes out as if the records themselves had been folded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Block, Floats
from foldaway.tallies.arm import ArmTally


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
