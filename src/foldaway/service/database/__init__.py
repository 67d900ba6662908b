"""The server's database: tables, transactions, and what is wrong with them in our words."""
