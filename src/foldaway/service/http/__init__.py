"""The HTTP interface: addresses, access, bodies, problems, and the dashboard's files."""
