"""Streams folded into a trial, exactly once: one adapter for each broker, one loop for all."""
