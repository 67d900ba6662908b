"""The few LAPACK calls that foldaway makes. SciPy loads with the first of them: it takes longer than all the rest."""

from __future__ import annotations

import numpy as np

from foldaway.numerics.block import Floats


def frame_rows(F: Floats, rows: Floats) -> Floats:
    """rows · F⁻¹ for F upper triangular.

    The first column is taken out before the others: where it is the intercept, that centres, and the difference of
    two numbers that are close is exact. BLAS would add up what it subtracts first, with errors of the level's size.
    """
    from scipy.linalg.blas import dtrsm

    framed = np.empty(rows.shape, order="F")
    np.divide(rows[:, 0], F[0, 0], out=framed[:, 0])
    np.multiply(framed[:, :1], F[0, 1:], out=framed[:, 1:])
    np.subtract(rows[:, 1:], framed[:, 1:], out=framed[:, 1:])
    framed[:, 1:] = dtrsm(1.0, F[1:, 1:], framed[:, 1:], side=1, overwrite_b=1)
    return framed


def append_rows(R: Floats, rows: Floats) -> Floats:
    """The triangular factor of R on top of more rows (n by K), by Householder reflections, in O(n K²)."""
    from scipy.linalg.lapack import dtpqrt

    if not len(rows):
        return R
    triangle: Floats = dtpqrt(0, min(len(R), 32), R, rows)[0]
    return triangle


def cholesky(gram: Floats) -> Floats | None:
    """The upper triangular factor of a Gram matrix, or None if it is not positive definite."""
    from scipy.linalg.lapack import dpotrf

    triangle, failed = dpotrf(gram, lower=0, clean=1)
    return None if failed else triangle


def solve_upper(R: Floats, values: Floats) -> Floats:
    """R⁻¹ · values for R upper triangular, by back substitution.

    BLAS would wake its threads for a system as small as these, and they keep a core busy long after.
    """
    solution = np.empty(np.shape(values))
    for i in reversed(range(len(R))):
        solution[i] = (values[i] - R[i, i + 1 :] @ solution[i + 1 :]) / R[i, i]
    return solution


def overwrite_working_memory() -> None:
    """Have ones take the place of the last numbers that went through the linear algebra libraries.

    NumPy's and SciPy's each keep their working memory for good, with the last blocks of rows that were packed there:
    outcomes and covariates in the tally's frame, from which anyone who has the tally can tell them as they were.

    Example:
        >>> overwrite_working_memory()
    """
    from scipy.linalg.blas import dgemm

    # However large the matrices were, they went through in blocks of fewer rows and columns than these.
    left, right = np.ones((512, 512)), np.ones((512, 64))
    np.matmul(left, right)
    dgemm(1.0, left, right)
