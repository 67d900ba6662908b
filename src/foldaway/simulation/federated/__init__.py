"""A federated trial with very many devices on one machine: the real client's code against a real coordinator.

``population`` is the simulated world, ``clients`` the devices of one process, ``run`` the coordinator's process and the
whole trial, and ``summary`` what came out, beside the analysis of kept rows that it is held against.
"""
