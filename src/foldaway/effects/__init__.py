"""What a trial found: ``effect`` is one estimate, ``findings`` all of them, ``effects`` how a person sees them."""

from foldaway.effects.effect import Effect
from foldaway.effects.effects import Effects

__all__ = ["Effect", "Effects"]
