"""Kernels, compiled by one process before others start that would each compile them."""

from __future__ import annotations

import subprocess
import sys

import msgspec

import foldaway as fa
from foldaway.plan import Bootstrap
from foldaway.simulation.datasets import checkout
from foldaway.simulation.demo import PLAN


def compile_kernels() -> None:
    """Fill numba's cache, where it is empty, with what most trials use."""
    subprocess.run([sys.executable, __file__], check=True)


def _fold(plan: fa.Plan) -> None:
    trial = fa.Trial(plan, key=bytes(16))
    for batch in checkout(100):
        trial.fold(batch)
    trial.effects()


if __name__ == "__main__":
    _fold(PLAN)
    for kind in ("poisson", "double-or-nothing"):
        _fold(msgspec.structs.replace(PLAN, moments={"bootstrap": Bootstrap(50, kind)}))
