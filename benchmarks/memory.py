"""Folding ten million records from Parquet: resident memory does not grow with the number of records."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
from measure import show

from foldaway.simulation.datasets import checkout

SIZES = (1_000_000, 5_000_000, 10_000_000)

FOLD = """
import re, sys
from pathlib import Path
from foldaway.simulation.demo import PLAN
from foldaway.sources.runs.folding import fold_files
trial = fold_files(sys.argv[1], PLAN)
trial.effects()
# Of this program alone: getrusage would count the process that started it.
print(trial.n, re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def main() -> None:
    """Print the table."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            file = Path(folder, f"{size}.parquet")
            write(file, size)
            start = time.perf_counter()
            done = subprocess.run([sys.executable, "-c", FOLD, str(file)], check=True, capture_output=True, text=True)
            seconds = time.perf_counter() - start
            n, peak = map(int, done.stdout.split())
            rows.append(
                [
                    f"{n:,}",
                    f"{file.stat().st_size / 2**20:,.0f} MB",
                    f"{peak / 1024:,.0f} MB",
                    f"{n / seconds / 1e6:.2f}",
                ]
            )
            file.unlink()
    unit = "million records per second (process start included)"
    show("Records folded from Parquet", rows, ["records", "file", "peak resident memory", unit])


def write(file: Path, size: int) -> None:
    """A simulated trial as Parquet, never in memory as a whole."""
    batches = checkout(size)
    first = next(batches)
    with pq.ParquetWriter(file, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


if __name__ == "__main__":
    main()
