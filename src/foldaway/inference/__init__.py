"""From tallies to estimates: pure functions, no state, no I/O."""
