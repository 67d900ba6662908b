"""The same fold where the data already is: on Spark and on Dask.

An engine cuts the data into partitions and runs a function on each. Ours folds a partition into a trial of its own,
hands its state on, encrypted, and merges states in a tree; `partial` is that function, the other modules are the
engines. Nothing but tallies leaves a worker.
"""
