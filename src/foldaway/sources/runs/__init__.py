"""Files folded into a trial, by one process or several, and backlogs of files that are resumed after a crash."""
