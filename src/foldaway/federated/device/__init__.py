"""A device: its arm, its records, its one report."""
