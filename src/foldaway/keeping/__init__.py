"""What outlives a process: states, saved files, lists of files, locks, keys, and when any of them may be written."""
