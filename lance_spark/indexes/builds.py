"""How the segments of an index are built: its builder, the rows of its column, its files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap

from lance_spark import progress
from lance_spark.errors import (
    CorruptFileError,
    InvalidInputError,
    InvalidOptionError,
    UnsupportedEncodingError,
)
from lance_spark.file.json_columns import paged_json
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.indexes import registry
from lance_spark.indexes.details import index_type_of
from lance_spark.indexes.files import IndexFiles, SegmentWriter
from lance_spark.indexes.merges import Merging, SegmentSource
from lance_spark.indexes.row_sets import MovedRows
from lance_spark.indexes.search import documents_of
from lance_spark.predicates.comparison import column_at
from lance_spark.proto import table_pb2
from lance_spark.runner import FragmentTask
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# How an index of one type is created.

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

    - `type_name`: As pylance names it, in upper case.
    - `write`: Writes the files from the values of a part; None if there is `write_batches`.
    - `supports`: Returns whether the index takes columns of a type.
    - `supports_field`: Returns whether the index takes a column whose type it takes.
    - `plain_only`: Whether columns of dictionaries or extension types are refused, although the
      index takes their values.
    - `with_addresses`: Whether the files have row addresses, also in tables with stable row ids.
    - `version`: Index version.
    - `version_of`: Returns the index version for all parameters, if it depends on them.
    - `defaults`: Parameters and their default values. An int default stands for an integer from
      `least` to `MAX_NUMBER`, a float default for a number between 0 and 1.
    - `parse`: Returns all parameters for the options of the caller, in place of `defaults`.
    - `details`: Returns the message in `index_details`, for the type of the column and all
      parameters.
    - `existing`: Returns the parameters of an existing segment, without those that have their
      defaults.
    - `json_columns`: Whether the index takes JSON columns, and no others.
    - `json_too`: Whether the index takes JSON columns besides others.
    - `of_column`: Returns the parameters that depend on the column.
    - `write_batches`: Writes the files from batches of values as they are read, and from other
      segments.
    - `train`: Learns from the rows, before the tasks are planned; it adds `MODEL` to the
      parameters.
    - `can_merge`: Returns whether the files of a segment can become a part of a new one with the
      parameters.
    - `merging`: How segments are merged, if there is no `write_batches`.
    - `stored_parts`: Yields what `write_batches` takes of another segment; None if it takes
      `Source`.
    - `replaces_all`: Returns whether a new segment must replace all segments of an index.
    - `target_of`: Returns the builder of the files, for all parameters, if they are those of
      another type.
    - `stage`: Name of the stage of progress in which `write_batches` takes the rows.
    - `max_rows`: Rows that a segment has at most by default, if fewer than other types of indexes
      have.
    """

    type_name: str
    write: Write | None
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

        Raises InvalidOptionError: an option is unknown or out of range.
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

        Raises CorruptFileError, MissingFileError, UnsupportedError, StorageError: the files of the
        segment cannot be read; create the index again.
        """
        return {**self.defaults, **self.existing(files)}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_NUMBER


def _is_fraction(value: object) -> bool:
    return isinstance(value, float) and 0 < value < 1


# --------------------------------------------------------------------------------------------------
# The builders of indexes.
#
# | type | index version | rows in its files |
# | --- | --- | --- |
# | BTREE | 0 | row ids |
# | BITMAP | 0 | row ids |
# | LABEL_LIST | 1 | row ids |
# | NGRAM | 0 | row ids |
# | ZONEMAP | 0 | row addresses |
# | BLOOMFILTER | 0 | row addresses |
# | INVERTED | 2; 3 for code | row ids |
# | JSON | 0 | as its target |
# | RTREE | 0 | row ids |
# | IVF_FLAT and others of vectors | 1; 2 for IVF_RQ | row ids |
#
# pylance 14 writes BTREE of version 1, with row addresses, in tables with stable row ids. Releases
# 4 to 13 do not read it: releases 4 to 11 drop it at the next change, and 12 and 13 let it cover
# rows that it does not have (`lance_spark.scan.pruning.coverage`). All releases read version 0,
# which also stays right when other columns of a row are updated.


def builder_of(index_type: str) -> Builder:
    """Return the builder of a type.

    Raises InvalidInputError: no index of the type can be created.
    """
    builder: Builder | None = None
    if isinstance(index_type, str):
        builder = registry.builder_named(index_type.upper())
    if builder is None:
        raise InvalidInputError(
            f"index type {index_type!r} cannot be created; the types are "
            f"{', '.join(registry.CREATED)}"
        )
    return builder


def builder_of_segment(segment: table_pb2.IndexMetadata) -> Builder | None:
    """Return the builder of the type of a segment; None if it cannot be created."""
    index_type = registry.TYPES.get(indexes.type_of_index(segment))
    if index_type is None or not index_type.builders:
        return None
    name = index_type.name
    if name not in index_type.builders:
        name = index_type_of(segment)
    return registry.builder_named(name) if name in index_type.builders else None


def target_of(builder: Builder, parameters: Mapping[str, Any]) -> Builder:
    """Return the builder whose files an index has: itself, but for JSON indexes."""
    return builder if builder.target_of is None else builder.target_of(parameters)


def can_extend(segment: table_pb2.IndexMetadata) -> bool:
    """Return whether an index can get more segments like one of its segments.

    Raises CorruptFileError: the details of a JSON index cannot be parsed.
    """
    documents = documents_of(indexes.type_of_index(segment))
    if documents is not None:
        return documents.target_of(segment).type_name in registry.CREATED_IN_DOCUMENTS
    return builder_of_segment(segment) is not None


# --------------------------------------------------------------------------------------------------
# The types of columns that indexes take.

_SCALARS = (
    pat.is_integer,
    pat.is_floating,
    pat.is_boolean,
    pat.is_decimal,
    pat.is_temporal,
    pat.is_string,
    pat.is_large_string,
    pat.is_binary,
    pat.is_large_binary,
    pat.is_fixed_size_binary,
)


def is_scalar(dtype: pa.DataType) -> bool:
    """Return whether a type is one of single values."""
    return any(test(dtype) for test in _SCALARS)


def is_list_of_scalars(dtype: pa.DataType) -> bool:
    """Return whether a type is one of lists of single values."""
    # Other clients refuse lists of a fixed size.
    return bool(pat.is_list(dtype) or pat.is_large_list(dtype)) and is_scalar(dtype.value_type)


def is_string(dtype: pa.DataType) -> bool:
    """Return whether a type is one of texts."""
    return bool(pat.is_string(dtype) or pat.is_large_string(dtype))


# --------------------------------------------------------------------------------------------------
# Reads the column of an index, with the id or address of each row.

_BATCH_ROWS = 1 << 16


def read_column(
    task: FragmentTask, path: tuple[Field, ...], row_field: Field
) -> tuple[pa.Array, UInt64Array]:
    """Return the values of all live rows, and the id or address of each, increasing.

    JSON is JSONB.

    - `task`: Has the fragments.
    - `path`: The fields from the top-level field to the column.
    - `row_field`: `ROW_ID` or `ROW_ADDRESS`.

    Raises CorruptFileError, CorruptTableError, StorageError.
    """
    part = next(column_parts(task, path, row_field, None))
    return part.values, part.ids


class ColumnPart(NamedTuple):
    """A part of a column.

    - `ids` (uint64 array): Row id or address of each value, increasing.
    """

    values: pa.Array
    ids: UInt64Array
    is_last: bool


def column_parts(
    task: FragmentTask, path: tuple[Field, ...], row_field: Field, part_bytes: int | None
) -> Iterator[ColumnPart]:
    """Yield the column as `read_column` returns it, in parts of about some bytes.

    There is at least one part, which may be empty.

    - `task`, `path`, `row_field`: As for `read_column`.
    - `part_bytes`: Bytes of a part; None for one part.

    Raises CorruptFileError, CorruptTableError, StorageError.
    """
    dtype = value_type(paged_json(path[-1]))
    values: list[pa.Array] = []
    ids: list[pa.Array] = []
    size = 0
    for batch_values, batch_ids in column_batches(task, path, row_field):
        if part_bytes is not None and size >= part_bytes:
            part = joined(values, ids, dtype)
            # Only one copy of a part is in memory while it is used.
            values, ids, size = [], [], 0
            yield ColumnPart(*part, is_last=False)
            del part
        values.append(batch_values)
        ids.append(pa.array(batch_ids))
        size += batch_values.nbytes + batch_ids.nbytes
    part = joined(values, ids, dtype)
    del values, ids
    yield ColumnPart(*part, is_last=True)


def column_batches(
    task: FragmentTask,
    path: tuple[Field, ...],
    row_field: Field,
    slices: Sequence[FragmentSlice] | None = None,
    stage: str = LOAD_DATA,
) -> Iterator[tuple[pa.Array, UInt64Array]]:
    """Yield the values of some live rows after the other, and their ids or addresses.

    The rows are in the order of the fragments; see `read_column`.

    - `task`, `path`, `row_field`: As for `read_column`.
    - `slices`: Rows to read, in place of those of all fragments of the task.
    - `stage`: Name of the stage in which the rows count.
    """
    names = [field.name for field in path]
    # Values in JSON documents are found in JSONB.
    columns = map(paged_json, Schema.of_paths([path]).fields)
    schema = Schema((*columns, row_field))
    chosen = _whole(task.fragments) if slices is None else slices
    total = sum(fragment.num_rows for fragment in task.fragments) if slices is None else None
    batches = _batches(task, chosen, schema)
    for batch in progress.counted(batches, stage, total, "rows", _num_rows):
        yield _plain(column_at(batch, names)), batch.column(batch.num_columns - 1).to_numpy()


@contextmanager
def naming_damaged_files(task: FragmentTask, path: tuple[Field, ...]) -> Iterator[None]:
    """Name the data file in the error if a document of a JSON column is damaged."""
    try:
        yield
    except (CorruptFileError, UnsupportedEncodingError):
        if path[-1].logical_type == "json":
            # A read as text has this error, with the name of the file.
            for _ in _batches(task, _whole(task.fragments), Schema.of_paths([path])):
                pass
        raise


def live_rows(
    task: FragmentTask, fragments: Sequence[Fragment], row_field: Field
) -> Iterator[UInt64Array]:
    """Yield the ids or addresses of the live rows of some fragments, without reading a column.

    Raises CorruptFileError, CorruptTableError, StorageError.
    """
    for batch in _batches(task, _whole(fragments), Schema((row_field,))):
        yield batch.column(0).to_numpy()


def _whole(fragments: Sequence[Fragment]) -> list[FragmentSlice]:
    return [FragmentSlice(fragment, 0, fragment.physical_rows) for fragment in fragments]


def _batches(
    task: FragmentTask, slices: Sequence[FragmentSlice], schema: Schema
) -> Iterator[pa.RecordBatch]:
    scan = ScanTask(
        uri=task.uri,
        lance_schema=schema,
        slices=tuple(slices),
        batch_size=_BATCH_ROWS,
        base_paths=task.base_paths,
        storage_options=task.storage_options,
    )
    return scan.batches()


def joined(
    values: list[pa.Array], ids: list[pa.Array], dtype: pa.DataType
) -> tuple[pa.Array, UInt64Array]:
    """Return values of a type and their ids, in the order of the ids."""
    column = pa.chunked_array(values, dtype).combine_chunks()
    row_keys = pa.chunked_array(ids, pa.uint64()).combine_chunks().to_numpy()
    if (row_keys[1:] < row_keys[:-1]).any():
        order = np.argsort(row_keys, kind="stable")
        column, row_keys = column.take(pa.array(order)), row_keys[order]
    return column, row_keys


def value_type(field: Field) -> pa.DataType:
    """Return the type of the values in an index: the storage type of an extension type."""
    # pylance cannot search indexes of dictionaries: no type of index takes them.
    dtype = field.arrow_field.type
    return dtype.storage_type if isinstance(dtype, pa.BaseExtensionType) else dtype


def _num_rows(batch: pa.RecordBatch) -> int:
    return int(batch.num_rows)


def _plain(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array.type, pa.BaseExtensionType) else array


# --------------------------------------------------------------------------------------------------
# The files of a new segment, from rows of a table and from existing segments.
#
# Rows are read in parts. If there are several parts, each becomes a segment in a temporary folder
# on the local disk, and these are merged as existing segments are. So the memory is bounded by a
# part, not by the column. Types of indexes whose segments cannot be merged have
# `Builder.write_batches`.

#: Bytes of the values of a part, with their ids.
PART_BYTES = 32 * 1024 * 1024


def write_files(
    segment: SegmentWriter,
    builder: Builder,
    dtype: pa.DataType,
    parts: Iterator[ColumnPart],
    sources: Sequence[SegmentSource],
    parameters: Mapping[str, Any],
) -> None:
    """Write the files of a segment.

    - `dtype`: Type of the values.
    - `sources`: Existing segments whose rows the new segment has, too.

    Raises CorruptFileError, CorruptTableError, MissingFileError, UnsupportedTypeError,
    StorageError.
    """
    assert builder.write is not None, "other types write batches"
    part = next(parts)
    if part.is_last and not sources:
        builder.write(segment, part.values, part.ids, parameters)
        return
    with tempfile.TemporaryDirectory(prefix="lance-index-", dir=local_folder()) as folder:
        paths = TablePaths.open(folder)
        runs = [_written(paths, segment.version, builder.write, part, parameters)]
        # The memory of a part is given up before the next is read.
        del part
        runs += [
            _written(paths, segment.version, builder.write, part, parameters) for part in parts
        ]
        assert builder.merging is not None, "other types write batches"
        builder.merging.merge(segment, dtype, [*sources, *runs], parameters)


def _written(
    paths: TablePaths,
    version: tuple[int, int],
    write: Write,
    part: ColumnPart,
    parameters: Mapping[str, Any],
) -> SegmentSource:
    """Write a part as a segment of its own."""
    with SegmentWriter(paths, version) as segment:
        write(segment, part.values, part.ids, parameters)
        segment.finish()
    message = table_pb2.IndexMetadata()
    message.uuid.uuid = segment.id.bytes
    return SegmentSource(IndexFiles(paths, message))


def local_folder() -> str | None:
    """Return a folder of Spark for temporary files; None for that of the system."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return folder if os.path.isdir(folder) else None
