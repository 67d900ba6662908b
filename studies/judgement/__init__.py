"""Are verdicts wrong no more often than they say, whatever the design, and is the row that leads the one to read?

Trials are simulated, folded by foldaway, and read as a person reads them: by verdicts, and by the rows that these come
from. The laws that every cell has to keep are written down with its design, before any trial is simulated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from studies.findings import options_of, publish

NAME = "judgement"


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study, or the designs whose topic or name contains ``--cells``."""
    from studies.judgement.designs import DESIGNS
    from studies.judgement.page import findings
    from studies.judgement.runs import simulated

    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--cells", default="")
    chosen, others = parser.parse_known_args(list(arguments))
    options = options_of(NAME, others, trials=2_000, seed=1, processes=2)
    if chosen.cells and options.write:
        sys.exit("The page holds every cell: leave out --cells or --write.")
    designs = [each for each in DESIGNS if chosen.cells.casefold() in each.title.casefold()]
    if not designs:
        sys.exit(f"No design's topic or name contains {chosen.cells!r}.")
    publish(
        findings(simulated(designs, options.trials, options.seed, options.processes), options.trials), NAME, options
    )
