"""What the server does with records, without HTTP: trials, batches, effects, their end."""
