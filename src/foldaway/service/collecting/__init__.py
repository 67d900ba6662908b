"""What the server does with records, without HTTP: trials, batches, effects, closing."""
