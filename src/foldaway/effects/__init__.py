"""What a trial found: ``effect`` is one estimate, ``findings`` all of them, ``verdict`` what they come to."""

from foldaway.effects.effect import Effect
from foldaway.effects.effects import Effects
from foldaway.effects.verdict import Verdict

__all__ = ["Effect", "Effects", "Verdict"]
