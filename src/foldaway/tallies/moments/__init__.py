"""Moments up to the fourth order, by arm: what regressions with robust errors are read from.

Only plans with a ``[moments]`` table, and devices that send moments, need them. Other rooms come in by this door;
`inference` alone reads further.
"""

from foldaway.tallies.moments.arm import ArmTally, Kinds
from foldaway.tallies.moments.arms import Arms, fold_batch
from foldaway.tallies.moments.combinations import Combinations, RawScores, indicators, level_columns, raw_scores
from foldaway.tallies.moments.few_values import FewValues, Powers, few_values, standing_out
from foldaway.tallies.moments.frame import Frame
from foldaway.tallies.moments.kinds import RECORDS, REPLICATES, UNITS
from foldaway.tallies.moments.outlying import outlies_within, outlying
from foldaway.tallies.moments.pooling import pooling_notes
from foldaway.tallies.moments.scores import Scores, UnitScores
from foldaway.tallies.moments.stream import WORTH_COMPILING, RowStream
from foldaway.tallies.moments.tally import Tally

__all__ = [
    "RECORDS",
    "REPLICATES",
    "UNITS",
    "WORTH_COMPILING",
    "ArmTally",
    "Arms",
    "Combinations",
    "FewValues",
    "Frame",
    "Kinds",
    "Powers",
    "RawScores",
    "RowStream",
    "Scores",
    "Tally",
    "UnitScores",
    "few_values",
    "fold_batch",
    "indicators",
    "level_columns",
    "outlies_within",
    "outlying",
    "pooling_notes",
    "raw_scores",
    "standing_out",
]
