"""Bytes to records: CSV, Parquet, Arrow and JSON, as files and as bodies that a stranger sends."""
