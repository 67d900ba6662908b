"""Numbers with a decimal comma, as spreadsheets of many countries write them between semicolons or tabs."""

import pyarrow as pa
import pyarrow.compute as pc

from foldaway.sources.formats.chunk import Unreadable

_WITH_A_COMMA = r"^[+-]?\d*,\d+([eE][+-]?\d+)?$"
_WITH_A_POINT = r"^[+-]?[\d,]*\.[\d,]*([eE][+-]?\d+)?$"
_PERHAPS_THOUSANDS = r"^[+-]?[1-9]\d{0,2}(,\d{3})+$"


class DecimalCommas:
    """The decimal commas of a file, column by column.

    1,250 may be 1.25 or 1250. What it is, another cell of its column tells: 0,5 and 1,25 can have nothing but a decimal
    comma. If none does, the file is refused. In a block that has points as well, a cell with a comma is no number.

    Example:
        >>> commas = DecimalCommas()
        >>> commas.as_points("price", pa.array(["1,250", "0,5", "3", "old"])).to_pylist()
        ['1.250', '0.5', '3', 'old']
        >>> commas.as_points("price", pa.array(["1,250", None])).to_pylist()  # it is known by now
        ['1.250', None]
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def as_points(self, column: str, cells: pa.Array) -> pa.Array:
        """A column's cells, with a point for each decimal comma.

        Raises:
            Unreadable: Its commas may group thousands.
        """
        decimal = _matching(cells, _WITH_A_COMMA)
        thousands = _matching(cells, _PERHAPS_THOUSANDS)
        if not pc.any(pc.or_(decimal, thousands)).as_py() or pc.any(_matching(cells, _WITH_A_POINT)).as_py():
            return cells
        if pc.any(pc.and_not(decimal, thousands)).as_py():
            self._known.add(column)
        if column not in self._known:
            raise Unreadable(
                f"has commas in the numbers of column {column!r} that may mark decimals or group thousands; write "
                "these numbers with a decimal point and without other marks"
            )
        return pc.if_else(decimal, pc.replace_substring(cells, ",", "."), cells)


def _matching(cells: pa.Array, pattern: str) -> pa.Array:
    return pc.fill_null(pc.match_substring_regex(cells, pattern), False)
