"""The files of a new segment, from rows of a table and from existing segments.

Rows are read in parts. If there are several parts, each becomes a segment in a temporary folder on
the local disk, and these are merged as existing segments are. So the memory is bounded by a part,
not by the column. Types of indexes whose segments cannot be merged have `Builder.write_batches`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lance_spark.mutations.indexes.builder import Builder
from lance_spark.mutations.indexes.column import ColumnPart
from lance_spark.mutations.indexes.merging.sources import SegmentSource
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter
from lance_spark.table.paths import TablePaths

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

    Parameters
    ----------
    segment : SegmentWriter
    builder : Builder
    dtype : pa.DataType
        Type of the values.
    parts : iterator of ColumnPart
    sources : sequence of SegmentSource
        Existing segments whose rows the new segment has, too.
    parameters : mapping of str to object

    Raises
    ------
    CorruptFileError, CorruptTableError, MissingFileError, UnsupportedTypeError, StorageError
    """
    part = next(parts)
    if part.is_last and not sources:
        builder.write(segment, part.values, part.ids, parameters)
        return
    with tempfile.TemporaryDirectory(prefix="lance-index-", dir=local_folder()) as folder:
        paths = TablePaths.open(folder)
        runs = [_written(paths, segment.version, builder, part, parameters)]
        # The memory of a part is given up before the next is read.
        del part
        runs += [_written(paths, segment.version, builder, part, parameters) for part in parts]
        assert builder.merging is not None, "other types write batches"
        builder.merging.merge(segment, dtype, [*sources, *runs], parameters)


def _written(
    paths: TablePaths,
    version: tuple[int, int],
    builder: Builder,
    part: ColumnPart,
    parameters: Mapping[str, Any],
) -> SegmentSource:
    """Write a part as a segment of its own."""
    with SegmentWriter(paths, version) as segment:
        builder.write(segment, part.values, part.ids, parameters)
        segment.finish()
    message = table_pb2.IndexMetadata()
    message.uuid.uuid = segment.id.bytes
    return SegmentSource(IndexFiles(paths, message))


def local_folder() -> str | None:
    """Return a folder of Spark for temporary files; None for that of the system."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return folder if os.path.isdir(folder) else None
