"""Trials whose records stay where they are: what devices and sites send, and what the coordinator makes of it.

``messages`` is what travels. ``coordinator`` holds the tallies of a federated trial and needs no network; the service
room puts it behind HTTP.
"""
