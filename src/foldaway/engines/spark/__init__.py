"""Folding on Spark: a data frame, a stream, and what a stream has stored.

Example::

    from foldaway.engines import spark

    trial = spark.fold(df, plan, key=key)
    query = spark.fold_stream(stream_df, plan, store="checkout-button")
    trial = spark.load("checkout-button")
"""

from foldaway.engines.spark.batch import fold
from foldaway.engines.spark.stream import StreamFold, fold_stream, load

__all__ = ["StreamFold", "fold", "fold_stream", "load"]
