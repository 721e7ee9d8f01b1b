"""How an index of one type is created."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidOptionError
from lance_spark.file.schema.field import Field
from lance_spark.indexes import registry
from lance_spark.mutations.indexes.merging.sources import Merging
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter
from lance_spark.scan.indexes.moved_rows import MovedRows
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import OpenTable
from lance_spark.table.rows.u64_segments import UInt64Array

#: The parameter that `Builder.train` adds: None if there is no row to learn from.
MODEL = "model"
#: Stage of progress in which rows are read. Some types do more with them than that.
LOAD_DATA = "load_data"
#: Greatest number of rows in a part of an index, such as a page or zone.
MAX_NUMBER = 1 << 24

#: Writes the files of a segment: values, the row id or address of each, increasing, and parameters.
Write = Callable[[SegmentWriter, pa.Array, UInt64Array, Mapping[str, Any]], None]
#: The same from batches, and from what other segments have.
WriteBatches = Callable[
    [SegmentWriter, Iterable[tuple[pa.Array, UInt64Array]], Mapping[str, Any], Iterable[Any]], None
]
#: Yields the parts of a segment: its files, the fragments that the new segment covers in place of
#: it, the rows that moved, and, in tables with stable row ids, the ids of the rows of these
#: fragments.
StoredParts = Callable[[IndexFiles, BitMap, MovedRows, UInt64Array | None], Iterator[Any]]
#: Returns parameters with what is learned from the rows of a table: the fields from the top-level
#: field to the column, fragments, and parameters.
Train = Callable[
    [OpenTable, tuple[Field, ...], Sequence[Fragment], Mapping[str, Any]], dict[str, Any]
]
#: Returns the bytes of the message in `index_details`: type of the column, and parameters.
Details = Callable[[pa.DataType, Mapping[str, Any]], bytes]


def _no_details(dtype: pa.DataType, parameters: Mapping[str, Any]) -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class Builder:
    """How an index of one type is created.

    Attributes
    ----------
    type_name : str
        As pylance names it, in upper case.
    write : callable
    supports : callable
        Returns whether the index takes columns of a type.
    supports_field : callable
        Returns whether the index takes a column whose type it takes.
    plain_only : bool
        Whether columns of dictionaries or extension types are refused, although the index takes
        their values.
    with_addresses : bool
        Whether the files have row addresses, also in tables with stable row ids.
    version : int
        Index version.
    version_of : callable or None
        Returns the index version for all parameters, if it depends on them.
    defaults : mapping of str to int or float
        Parameters and their default values. An int default stands for an integer from `least` to
        `MAX_NUMBER`, a float default for a number between 0 and 1.
    least : int
    parse : callable or None
        Returns all parameters for the options of the caller, in place of `defaults`.
    details : callable
        Returns the message in `index_details`, for the type of the column and all parameters.
    existing : callable
        Returns the parameters of an existing segment, without those that have their defaults.
    json_columns : bool
        Whether the index takes JSON columns, and no others.
    json_too : bool
        Whether the index takes JSON columns besides others.
    of_column : callable
        Returns the parameters that depend on the column.
    write_batches : callable or None
        Writes the files from batches of values as they are read, and from other segments.
    train : callable or None
        Learns from the rows, before the tasks are planned; it adds `MODEL` to the parameters.
    can_merge : callable or None
        Returns whether the files of a segment can become a part of a new one with the parameters.
    merging : Merging or None
        How segments are merged, if there is no `write_batches`.
    stored_parts : callable or None
        Yields what `write_batches` takes of another segment; None if it takes `Source`.
    replaces_all : callable or None
        Returns whether a new segment must replace all segments of an index.
    target_of : callable or None
        Returns the builder of the files, for all parameters, if they are those of another type.
    stage : str
        Name of the stage of progress in which `write_batches` takes the rows.
    max_rows : int or None
        Rows that a segment has at most by default, if fewer than other types of indexes have.
    """

    type_name: str
    write: Write
    supports: Callable[[pa.DataType], bool]
    supports_field: Callable[[Field], bool] = lambda _: True
    plain_only: bool = False
    with_addresses: bool = False
    version: int = 0
    version_of: Callable[[Mapping[str, Any]], int] | None = None
    defaults: Mapping[str, int | float] = field(default_factory=dict)
    least: int = 1
    parse: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    details: Details = _no_details
    existing: Callable[[IndexFiles], dict[str, Any]] = lambda _: {}
    json_columns: bool = False
    json_too: bool = False
    of_column: Callable[[Field], Mapping[str, Any]] = lambda _: {}
    write_batches: WriteBatches | None = None
    train: Train | None = None
    can_merge: Callable[[IndexFiles, Mapping[str, Any]], bool] | None = None
    merging: Merging | None = None
    stored_parts: StoredParts | None = None
    replaces_all: Callable[[Iterable[IndexFiles]], bool] | None = None
    target_of: Callable[[Mapping[str, Any]], Builder] | None = None
    stage: str = LOAD_DATA
    max_rows: int | None = None

    @property
    def type_url(self) -> str:
        """Of the message in `index_details`."""
        return registry.type_built_as(self.type_name).type_url

    def parameters(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return all parameters, with defaults.

        Raises
        ------
        InvalidOptionError
            An option is unknown or out of range.
        """
        if self.parse is not None:
            return self.parse(options)
        for name, value in options.items():
            if name not in self.defaults:
                names = ", ".join(self.defaults) or "none"
                raise InvalidOptionError(
                    f"{self.type_name} index: option {name!r} is unknown; the options are {names}"
                )
            if isinstance(self.defaults[name], float):
                is_valid, expected = _is_fraction(value), "a number between 0 and 1"
            else:
                is_valid = _is_count(value) and value >= self.least
                expected = f"an integer from {self.least} to {MAX_NUMBER}"
            if not is_valid:
                raise InvalidOptionError(
                    f"{self.type_name} index: {name} must be {expected}, not {value!r}"
                )
        return {**self.defaults, **options}

    def parameters_of(self, files: IndexFiles) -> dict[str, Any]:
        """Return all parameters of an existing segment.

        Raises
        ------
        CorruptFileError, MissingFileError, UnsupportedError, StorageError
            The files of the segment cannot be read; create the index again.
        """
        return {**self.defaults, **self.existing(files)}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_NUMBER


def _is_fraction(value: object) -> bool:
    return isinstance(value, float) and 0 < value < 1
