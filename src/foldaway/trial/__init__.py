"""A plan and its tallies, with the key they are folded under, whose records have come, and what happened."""

from foldaway.trial.ending import finish_sealing, prepare_sealing, saved_effects
from foldaway.trial.trial import Trial, open_saved, quiet_effects

__all__ = ["Trial", "finish_sealing", "open_saved", "prepare_sealing", "quiet_effects", "saved_effects"]
