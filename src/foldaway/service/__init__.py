"""The collecting server: records come in over HTTP, tallies are kept, durable and sealed."""
