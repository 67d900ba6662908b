"""A server, and files of records to send to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foldaway.simulation.datasets import checkout
from served import Served
from servers import Nursery


@pytest.fixture(scope="module")
def server(served_from: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("cli"), served_from) as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of records."""
    folder = tmp_path_factory.mktemp("files")
    records = pa.Table.from_batches(list(checkout(3000, seed=5)))
    for day, part in (("day1", records[:2000]), ("day2", records[2000:])):
        pq.write_table(part, folder / f"{day}.parquet")
    return folder
