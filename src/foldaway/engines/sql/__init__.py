"""The fold where a database has the records: one statement gives sums by arm and group, and no row leaves it."""
