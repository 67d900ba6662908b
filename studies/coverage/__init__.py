"""Do all intervals cover that theory says should, whatever the design, the estimator and the kind of error?

Trials of known effect are simulated, folded by foldaway and, beside it, analysed by statsmodels on all rows. What
theory says of every cell is written down in `expectations`, before any is simulated.
"""

from __future__ import annotations

from collections.abc import Sequence

from studies.findings import options_of, publish

NAME = "coverage"


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study.

    A few of some hundred cells lie outside three Monte Carlo errors by chance alone. So a design with such a cell is
    simulated once more, from another seed, and a cell counts as broken if it is outside again.
    """
    from studies.coverage.designs import DESIGNS
    from studies.coverage.page import findings
    from studies.coverage.runs import broken, simulated

    options = options_of(NAME, arguments, trials=2_000, seed=1, processes=2)
    print(f"seed {options.seed}", flush=True)
    grid = simulated(DESIGNS, options.trials, options.seed, options.processes)
    outside = broken(grid, options.trials)
    doubtful = [design for design in DESIGNS if design.name in {cell.design for cell in outside}]
    again = simulated(doubtful, options.trials, options.seed + 1, options.processes)
    twice = {cell: again[cell] for cell in outside if cell in again}
    publish(findings(grid, twice, options.trials, options.seed), NAME, options)
