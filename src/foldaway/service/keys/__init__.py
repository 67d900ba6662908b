"""Who may do what, and under which key the database is sealed."""
