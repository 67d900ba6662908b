"""Whether what stands where a file's column names should be are names: a record's values must not be shown as such."""

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from foldaway.sources.formats.chunk import Unreadable

# An address, a date, a telephone number, an amount: no letters but those of an address, and a digit.
_VALUE = re.compile(r".*\S@\S.*|[^A-Za-z]*\d[^A-Za-z]*")


def require_names(names: Sequence[str], records: pa.RecordBatch) -> None:
    """Refuse what are not names, and say so by position.

    A file without a header line has a record in its place. Its arm, at the latest, comes again further down.

    Args:
        names: What stands where the names should be.
        records: Records of the file, as far as its columns' names are unique.

    Raises:
        Unreadable: A number, another value, or a text that its own column holds.
    """
    for position, name in enumerate(names, start=1):
        kind = _kind(name, records)
        if kind is not None:
            raise Unreadable(
                f"has {kind} where the name of column {position} of {len(names)} should be: its first line is a "
                "record; add one that names the columns"
            )


def _kind(name: str, records: pa.RecordBatch) -> str | None:
    try:
        float(name)
    except ValueError:
        pass
    else:
        return "a number"
    if _VALUE.fullmatch(name):
        return "what looks like a value"
    column = records.column(name) if name in records.schema.names else pa.nulls(0)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return "a value of that very column" if is_text and pc.any(pc.equal(column, name)).as_py() else None
