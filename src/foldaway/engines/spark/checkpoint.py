"""Spark's checkpoint of a stream, taken back to the last micro-batch that is stored.

Spark takes a micro-batch as done when `foreachBatch` returns. Tallies of fewer records than a cohort must not be
written by then, so a crash may lose them. But Spark can be told to do such batches again: its checkpoint has a
numbered file for every batch that was begun (`offsets`: where in the source it ends) and for every one that was done
(`commits`). Without those of the later batches, Spark goes on from the end of the last stored one.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

from foldaway.errors import StateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGS = ("offsets", "commits")


class Checkpoint:
    """A checkpoint, in a folder wherever Hadoop's file systems reach."""

    def __init__(self, session: SparkSession, folder: str) -> None:
        self.folder = folder
        self._jvm: Any = session.sparkContext._jvm
        conf = session.sparkContext._jsc.hadoopConfiguration()
        self._files = self._path().getFileSystem(conf)

    def _path(self, *parts: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("/".join([self.folder.rstrip("/"), *parts]))

    def query(self) -> str | None:
        """The identifier of the query that the checkpoint is of, if there is one."""
        path = self._path("metadata")
        if not self._files.exists(path):
            return None
        with closing(self._files.open(path)) as stream:
            return str(json.loads(bytes(stream.readAllBytes()))["id"])

    def batches(self, log: str) -> list[int]:
        """The numbers of the batches in a log, the latest first."""
        path = self._path(log)
        names = (
            [status.getPath().getName() for status in self._files.listStatus(path)] if self._files.exists(path) else []
        )
        return sorted((int(name) for name in names if name.isdecimal()), reverse=True)

    def rewind(self, batch: int) -> int:
        """Take the checkpoint back to the end of this batch, -1 for the stream's beginning; how many were taken back.

        May be broken off anywhere and called again: it removes the latest first.
        """
        begun = self.batches("offsets")
        if batch >= 0 and batch not in begun:
            raise StateError(
                f"the checkpoint {self.folder} no longer holds batch {batch}, the last one that is stored; "
                "without it records would be counted twice or not at all."
            )
        for log in _LOGS:
            for number in self.batches(log):
                if number > batch:
                    self._files.delete(self._path(log, str(number)), False)
        return sum(number > batch for number in begun)
