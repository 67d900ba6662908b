"""What people read: tables, plots, pages."""
