"""Rows as tables of other libraries: dicts, Arrow, pandas and polars."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foldaway.errors import instead_of, not_installed

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class Tabular(ABC):
    """What has rows, each a flat dict: a subclass gives these, and the type of each field."""

    @abstractmethod
    def to_dicts(self) -> list[dict[str, Any]]:
        """One flat dict per row."""

    @abstractmethod
    def _fields(self) -> Mapping[str, str]:
        """The type of each field as an annotation has it: ``"int"``, or ``"int | None"``."""

    def to_arrow(self) -> pyarrow.Table:
        """An Arrow table."""
        import pyarrow as pa

        types = {"str": pa.string(), "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
        fields = [(name, types[kind.split(" ")[0]]) for name, kind in self._fields().items()]
        return pa.Table.from_pylist(self.to_dicts(), schema=pa.schema(fields))

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas data frame."""
        with instead_of(ModuleNotFoundError, ImportError(not_installed("pandas", "pandas"))):
            frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> polars.DataFrame:
        """A polars data frame."""
        with instead_of(ModuleNotFoundError, ImportError(not_installed("polars", "polars"))):
            import polars as pl
        return pl.DataFrame(self.to_arrow())
