"""How large a trial must be, and what one of a given size can show; in `drafting`, a first plan for records."""

from foldaway.planning.answer import Power
from foldaway.planning.baseline import Baseline, baselines_of
from foldaway.planning.comparing import Planned
from foldaway.planning.power import power

__all__ = ["Baseline", "Planned", "Power", "baselines_of", "power"]
