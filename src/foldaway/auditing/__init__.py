"""Attacks on one's own tallies and answers: how many people could be solved for, and by which numbers."""
