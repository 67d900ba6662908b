"""What must not outlive a record: hardened memory, wiped buffers, decoys."""
