"""Fixtures that several rooms' tests use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from brokers import broker, kafka_server, nats_server, redis_server, some_broker
from browser import browser
from compiled import compile_kernels
from mariadb import mariadb
from measured import EachLawOnce
from node_package import node_package
from postgres import postgres, quick_folder
from served import served_from

__all__ = [
    "broker",
    "browser",
    "kafka_server",
    "mariadb",
    "nats_server",
    "node_package",
    "postgres",
    "redis_server",
    "served_from",
    "some_broker",
]

# Scripts that made reference numbers, with packages that the tests do without.
collect_ignore_glob = ["data/*"]

# The same cases in every run: what fails, fails for everybody.
settings.register_profile("same", derandomize=True, deadline=None, database=None, max_examples=50)
settings.load_profile("same")


# Processes that tests start have the devices of this tree, whether or not these are installed.
CLIENT = str(Path(__file__).parents[1] / "clients/python/src")


def pytest_configure(config: pytest.Config) -> None:
    if CLIENT not in (paths := os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        os.environ["PYTHONPATH"] = os.pathsep.join([CLIENT, *filter(None, paths)])
    config.pluginmanager.register(EachLawOnce())
    if memory := quick_folder():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", memory)  # where tests' folders are: states wait for the disk
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        compile_kernels()


@pytest.fixture(scope="session", autouse=True)
def no_key_at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whoever sends files makes a key; not in the home of who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-home")))
        yield
