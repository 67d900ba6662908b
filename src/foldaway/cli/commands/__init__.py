"""What the command line can do: one file for each family of commands."""
