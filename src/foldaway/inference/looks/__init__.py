"""Planned looks: how much of α each spends, where its boundaries lie, and what is found once the trial stops."""
