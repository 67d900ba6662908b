"""A regression with very many columns: folded with moments by group, beside libraries that keep all rows.

    python -m benchmarks wide

Each runs in a process of its own, on two threads. Its time is that of the regression, without making the rows. Its
memory is the most that the process ever held, which for the peers includes the rows.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measure import show

ROWS = int(os.environ.get("WIDE_ROWS", 1_000_000))
COLUMNS, BLOCK, UNITS = 200, 50_000, 100_000
NAMES = ["const", *(f"x{c}" for c in range(1, COLUMNS))]
MOST_MEMORY = 1_000  # MB


def main() -> None:
    """Print the table."""
    found = {name: measured(name) for name in CONTESTANTS}
    ours = found["foldaway, groups=128"]
    rows = []
    for name, each in found.items():
        apart = np.max(np.abs(np.array(each["coef"]) / np.array(ours["coef"]) - 1))
        memory, most = each["memory"], ""
        if each is ours:
            most = f"{MOST_MEMORY:,} MB: {'yes' if memory <= MOST_MEMORY else 'NO'}"
        rows.append([name, f"{each['seconds']:.1f} s", f"{memory:,.0f} MB", most, f"{apart:.0e}"])
    header = ["", "time", "peak memory", "at most", "coefficients apart"]
    show(f"{ROWS:,} rows, {COLUMNS} columns", rows, header)


def measured(name: str) -> dict[str, Any]:
    """What a process says that runs one contestant."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "2"}
    words = [sys.executable, __file__, name]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, env=environment)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def blocks() -> Iterator[tuple[Any, Any, Any]]:
    """The rows: columns, outcome and unit."""
    slopes = np.linspace(1, 2, COLUMNS)
    for start in range(0, ROWS, BLOCK):
        rng = np.random.default_rng(start)
        X = rng.normal(size=(BLOCK, COLUMNS))
        X[:, 0] = 1
        yield X, X @ slopes + rng.normal(size=BLOCK) * (1 + X[:, 1] ** 2), rng.integers(0, UNITS, BLOCK)


def kept() -> tuple[Any, Any]:
    """All rows at once, without a second copy."""
    X, y = np.empty((ROWS, COLUMNS)), np.empty(ROWS)
    for i, (x, outcome, _) in enumerate(blocks()):
        X[i * BLOCK : (i + 1) * BLOCK], y[i * BLOCK : (i + 1) * BLOCK] = x, outcome
    return X, y


def foldaway() -> tuple[float, Any]:
    """Errors by unit, of which a unit's rows may be anywhere."""
    import foldaway as fa

    fit, seconds = fa.LeastSquares(NAMES, groups=128), 0.0
    for X, y, units in blocks():
        start = time.perf_counter()
        fit.fold(X, y, cluster=units)
        seconds += time.perf_counter() - start
    start = time.perf_counter()
    fit.std_error("jackknife")
    return seconds + time.perf_counter() - start, fit.coef


def statsmodels() -> tuple[float, Any]:
    """Robust errors of independent rows."""
    import statsmodels.api as sm

    X, y = kept()
    start = time.perf_counter()
    fit = sm.OLS(y, X).fit(cov_type="HC1")
    assert len(fit.bse) == COLUMNS
    return time.perf_counter() - start, fit.params


def pyfixest() -> tuple[float, Any]:
    """The same."""
    import pandas as pd
    import pyfixest as pf

    X, y = kept()
    frame = pd.DataFrame(X, columns=NAMES, copy=False).assign(y=y)
    start = time.perf_counter()
    fit = pf.feols(f"y ~ {' + '.join(NAMES[1:])}", frame, vcov="HC1", copy_data=False, store_data=False)
    assert len(fit.se()) == COLUMNS
    return time.perf_counter() - start, fit.coef().to_numpy()


CONTESTANTS: dict[str, Callable[[], tuple[float, Any]]] = {
    "foldaway, groups=128": foldaway,
    "statsmodels, HC1": statsmodels,
    "pyfixest, HC1": pyfixest,
}


if __name__ == "__main__":
    seconds, coef = CONTESTANTS[sys.argv[1]]()
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert peak is not None
    print(json.dumps({"seconds": seconds, "coef": list(coef), "memory": int(peak[1]) / 1024}))
