"""The few LAPACK calls that foldaway makes. SciPy loads with the first of them: it takes longer than all the rest."""

from __future__ import annotations

from foldaway.block import Floats


def frame_rows(F: Floats, rows: Floats) -> Floats:
    """rows · F⁻¹ for F upper triangular."""
    from scipy.linalg.blas import dtrsm

    framed: Floats = dtrsm(1.0, F, rows, side=1)
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
    """R⁻¹ · values for R upper triangular."""
    from scipy.linalg import solve_triangular

    solution: Floats = solve_triangular(R, values)
    return solution
