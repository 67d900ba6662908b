"""How many digits are right, on NIST's sets and on hard ones, beside solvers that see all rows at once?

The answers are NIST's certified ones, and for the hard sets those of rational arithmetic, which rounds nowhere but at
the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from studies.findings import options_of, publish

NAME = "digits"


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    from studies.digits.page import findings
    from studies.digits.sets import measured

    options = options_of(NAME, arguments, draws=25, seed=1)
    publish(findings(measured(options.draws, options.seed), options.draws), NAME, options)
