"""Files and streams in, Arrow batches out: CSV, Parquet, Arrow and newline-delimited JSON, by one function.

A source delivers the values as it found them and judges none of them; `foldaway.records` does that. No
record's value is ever part of a message.
"""

from foldaway.sources.batch import Batch, Wanted
from foldaway.sources.files import FORMATS, column_names, read
from foldaway.sources.paths import Stdin, expand, size

__all__ = ["FORMATS", "Batch", "Stdin", "Wanted", "column_names", "expand", "read", "size"]
