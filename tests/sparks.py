"""Spark for tests: one session at a time, in one Java process for all tests of this one."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from postgres import quick_folder

JAVA = "Spark needs Java 17: on Debian, apt-get install openjdk-17-jre-headless"

# Nothing compressed, so that a search of Spark's files can find what is in them; two tasks at a time, and four attempts
# at each. A closure of any size goes through a file, as a large one would. Java and Spark compile no more than they
# must: the process is gone before it would pay.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.ansi.enabled": "true",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.broadcast.compress": "false",
    "spark.broadcast.UDFCompressionThreshold": "1",
    "spark.log.level": "OFF",
}


def require_java() -> None:
    """Skip without Java, but not where everything must run."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").exists()):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(JAVA)


@cache
def folder() -> Path:
    """Where this process's Spark writes everything."""
    return Path(tempfile.mkdtemp(prefix="foldaway-spark-", dir=quick_folder()))


def session(*, encrypted: bool = False) -> Any:
    """A running session, with Spark's own encryption of its files or without."""
    from pyspark.sql import SparkSession

    require_java()
    active = SparkSession.getActiveSession()
    if active is not None:
        if (active.conf.get("spark.io.encryption.enabled", "false") == "true") == encrypted:
            return active
        stop(active)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    places = {"spark.local.dir": "local", "spark.eventLog.dir": "events", "spark.sql.warehouse.dir": "warehouse"}
    builder = SparkSession.builder.master("local[2,4]").appName("foldaway tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    for name, place in places.items():
        path = folder() / place
        path.mkdir(parents=True, exist_ok=True)
        builder = builder.config(name, str(path))
    return builder.config("spark.io.encryption.enabled", str(encrypted).lower()).getOrCreate()


def stop(session: Any) -> None:
    """Stop a session and its streams, which otherwise go on to look for files as fast as they can, for ever."""
    stop_streams(session)
    session.stop()


def stop_streams(session: Any) -> None:
    for query in session.streams.active:
        query.stop()


def remove() -> None:
    """Stop the session, end Java, which takes paths from where it was started, and take away what Spark has written."""
    if folder.cache_info().currsize:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        if (active := SparkSession.getActiveSession()) is not None:
            stop(active)
        gateway: Any = SparkContext._gateway
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(60)
            SparkContext._gateway = SparkContext._jvm = None
        shutil.rmtree(folder(), ignore_errors=True)
        folder.cache_clear()
