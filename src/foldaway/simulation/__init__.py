"""Simulated trials: data sets, the demo, and federated trials with very many devices."""
