"""The compiled inner loops: keyed hash, bootstrap weights, and their accumulation.

One way through: `siphash.hash_identifiers` turns an identifier column into 64-bit unit numbers under the trial's
secret key, and `accumulate.accumulate` makes the weights of those units and adds the weighted products, with no
weight vector ever stored.

Importing this package imports no compiler; importing one of its modules does.
"""
