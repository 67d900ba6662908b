"""Numbers with a decimal comma, as spreadsheets of many countries write them between semicolons or tabs."""

import pyarrow as pa
import pyarrow.compute as pc

from foldaway.sources.formats.chunk import Unreadable

_WITH_A_COMMA = r"^[+-]?(\d*|[1-9]\d{0,2}(\.\d{3})+),\d+([eE][+-]?\d+)?$"
_WITH_A_POINT = r"^[+-]?[\d,]*\.\d*([eE][+-]?\d+)?$"
_WITH_POINTS = r"^[+-]?[1-9]\d{0,2}(\.\d{3})+$"
_PERHAPS_THOUSANDS = r"^[+-]?[1-9]\d{0,2}(,\d{3})+$"


class DecimalCommas:
    """The decimal commas of a file, column by column.

    1,250 may be 1.25 or 1250. What it is, another cell of its column tells: 0,5 and 1.234,50 can have nothing but a
    decimal comma, and points then group thousands. If none does, the file is refused, and so is one with a column in
    which both marks are decimal.

    Example:
        >>> commas = DecimalCommas()
        >>> commas.as_points("price", pa.array(["1,250", "1.234,50", "3", "old"])).to_pylist()
        ['1.250', '1234.50', '3', 'old']
        >>> commas.as_points("price", pa.array(["1,250", "1.250", None])).to_pylist()  # it is known by now
        ['1.250', '1250', None]
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def known(self, column: str) -> bool:
        """Whether a cell has shown that the column's commas are decimal."""
        return column in self._known

    def as_points(self, column: str, cells: pa.Array) -> pa.Array:
        """A column's cells, with a point for each decimal comma.

        Raises:
            Unreadable: Its commas may group thousands, or it has decimal points as well.
        """
        decimal, thousands, grouped = (
            _matching(cells, each) for each in (_WITH_A_COMMA, _PERHAPS_THOUSANDS, _WITH_POINTS)
        )
        if _any(pc.and_not(decimal, thousands)):
            self._known.add(column)
        if not self.known(column) and not _any(thousands):
            return cells
        if _any(pc.and_not(_matching(cells, _WITH_A_POINT), grouped)):
            raise Unreadable(
                f"has both commas and points as decimal marks in column {column!r}; write all of its numbers with a "
                "decimal point and without other marks"
            )
        if not self.known(column):
            raise Unreadable(
                f"has commas in the numbers of column {column!r} that may mark decimals or group thousands; write "
                "these numbers with a decimal point and without other marks"
            )
        points = pc.replace_substring(pc.replace_substring(cells, ".", ""), ",", ".")
        return pc.if_else(pc.or_(decimal, grouped), points, cells)


def _any(mask: pa.Array) -> bool:
    return bool(pc.any(mask).as_py())


def _matching(cells: pa.Array, pattern: str) -> pa.Array:
    return pc.fill_null(pc.match_substring_regex(cells, pattern), False)
