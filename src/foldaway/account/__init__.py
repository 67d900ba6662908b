"""Durable tallies, the records pending upon them, the gate between the two, and where they are stored."""
