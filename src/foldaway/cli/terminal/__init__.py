"""How the command line speaks to a person: progress, tables, sentences, and how it ends."""
