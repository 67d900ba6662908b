"""What the coordinator of a federated trial makes of messages: tallies, checks, effects. No network."""
