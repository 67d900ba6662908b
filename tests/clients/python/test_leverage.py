"""Scores corrected for leverage, from products of rows alone, are those of the rows themselves."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from foldaway.federated.replies.models import corrected_score
from foldaway_device.leverage import corrected


@pytest.mark.parametrize("kind", ["CR2", "CR3"])
@pytest.mark.parametrize(("n", "q"), [(1, 1), (2, 3), (7, 4), (40, 6)])
def test_they_are_the_servers(kind: Literal["CR2", "CR3"], n: int, q: int) -> None:
    rng = np.random.default_rng(n)
    X, E, others = rng.normal(size=(n, q)), rng.normal(size=(n, 2)), rng.normal(size=(3 * q, q))
    for rest in (others.T @ others, np.zeros((q, q))):  # nobody else: the device alone determines everything
        bread = np.linalg.pinv(X.T @ X + rest).astype(np.float64)
        found = corrected((X.T @ X).tolist(), (X.T @ E).tolist(), bread.tolist(), kind)
        expected = corrected_score(X, E, bread, kind)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(X.T @ E).max())
