"""Anything tabular in, checked batches out: the only room that sees raw identifiers.

``columns`` brings every kind of input to Arrow columns, ``values`` turns a column into numbers or codes and
finds its faults, ``faults`` counts them, ``check`` puts it together.
"""

from foldaway.records.check import check
from foldaway.records.faults import Fault, Faults

__all__ = ["Fault", "Faults", "check"]
