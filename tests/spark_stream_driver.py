"""A program to be killed, which folds a stream of files: FOLDER STORE PLAN KEY MODE, forever or to-the-end."""

from __future__ import annotations

import sys
from pathlib import Path

import foldaway as fa
import sparks
from foldaway.engines import spark


def main(folder: str, store: str, plan: str, key: str, mode: str) -> None:
    session = sparks.session()
    schema = session.read.parquet(folder).schema
    stream = session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)
    trigger = {"processingTime": "0 seconds"} if mode == "forever" else {"availableNow": True}
    query = spark.fold_stream(stream, fa.Plan.load(plan), store=store, key=bytes.fromhex(key), trigger=trigger)
    print("started", flush=True)
    query.awaitTermination()
    trial = query.end()
    (Path(store) / "final").write_bytes(trial.dumps())
    sparks.remove()


if __name__ == "__main__":
    main(*sys.argv[1:])
