"""What a trial found: ``effect`` is one estimate, ``effects`` all of them, ``printed`` how a person sees them."""

from foldaway.effects.effect import Effect
from foldaway.effects.effects import Effects

__all__ = ["Effect", "Effects"]
