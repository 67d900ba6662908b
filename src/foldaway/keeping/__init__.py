"""What outlives a process: states, saved files, ledgers, locks, keys, and when any of them may be written."""
