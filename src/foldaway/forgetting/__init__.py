"""What must not outlive a record: a process that overwrites what it frees, and a first batch of made-up records."""
