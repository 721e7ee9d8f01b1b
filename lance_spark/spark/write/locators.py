"""The bytes of blobs of which a writer of Spark gets locators (`scan.blobs`).

The rows of a task are resolved before anything else looks at them, in batches that are cut by the
bytes of their blobs.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.meta import BLOB_KEY
from lance_spark.errors import error_context
from lance_spark.file.schema.field import BLOB_DESCRIPTOR, Field
from lance_spark.file.schema.nested import Lengths
from lance_spark.scan.blobs import MAX_COUNTED, BlobLoader, Locator, locators_in, parse_place
from lance_spark.scan.fragment.column_reader import cuts
from lance_spark.spark.jvm.classes import PACKAGE, call_static, is_connect, loaded_extension
from lance_spark.spark.jvm.shims.pyspark_names import java_frame
from lance_spark.spark.options.read import split_options
from lance_spark.storage.source import ByteSource
from lance_spark.table.paths import TablePaths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A column of the rows of a job, and the key of its metadata that has the mark of locators.
_JOB, _KEY = "__lance_locators", "lance.blob.locators"
#: Data files that a task keeps open.
_MAX_OPEN = 16
_BLOB = Field.from_arrow(pa.field("blob", pa.large_binary(), True, {BLOB_KEY: "true"}), 0)


@dataclass(frozen=True, slots=True)
class BlobSources:
    """What a task needs to read the blobs of the locators of its plan.

    - `mark`: What the locators of the plan begin with.
    - `storage_options` (tuple of mapping, not shown by `repr`): Of each source, by its number.
    """

    mark: bytes
    storage_options: tuple[Mapping[str, Any], ...] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> BlobSources:
        """Parse the option of a write (`BlobLocators.java`)."""
        parts = json.loads(text)
        options = tuple(split_options(source).storage for source in parts["sources"])
        return cls(bytes.fromhex(parts["mark"]), options)


@contextmanager
def located_rows(spark: Any, frame: DataFrame) -> Iterator[tuple[DataFrame, BlobSources | None]]:
    """Let scans return locators in the job of a context, which must be the only job of the frame.

    Yields
    ------
    DataFrame
        The rows. With locators they have one more column, by which the rule of Spark's optimizer
        knows the job (`CopiedBlobs.java`).
    BlobSources or None
        What the work needs to read the blobs (`rows_of_job`); None without locators.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
    from pyspark.sql.types import BinaryType

    copied = None if is_connect(spark) else _copied_blobs(spark)
    if not any(isinstance(field.dataType, BinaryType) for field in frame.schema):
        copied = None
    text = None if copied is None else call_static(spark, copied, "begin", java_frame(frame))
    if text is None:
        yield frame, None
        return
    sources = BlobSources.parse(text)
    mark = sources.mark.hex()
    try:
        yield frame.select("*", F.lit(True).alias(_JOB, metadata={_KEY: mark})), sources
    finally:
        call_static(spark, copied, "end", mark)


def _copied_blobs(spark: Any) -> Any:
    """Return the class CopiedBlobs; None if the session lacks the rules of the optimizer."""
    extension = loaded_extension(spark)
    if extension is None:
        return None
    return extension.getClassLoader().loadClass(f"{PACKAGE}.CopiedBlobs")


def rows_of_job(
    batches: Iterator[pa.RecordBatch], sources: BlobSources | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the task of a job, as `resolved` does; see `located_rows`."""
    if sources is not None:
        batches = map(_without_last, batches)
    return resolved(batches, sources)


def _without_last(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = pa.schema(list(batch.schema)[:-1], batch.schema.metadata)
    return pa.RecordBatch.from_arrays(batch.columns[:-1], schema=schema)


def resolved(
    batches: Iterator[pa.RecordBatch], sources: BlobSources | None
) -> Iterator[pa.RecordBatch]:
    """Yield rows with the bytes of blobs in place of locators.

    All batches have one schema. Binary columns have 64-bit offsets, unless there are no sources.

    Raises CorruptFileError, MissingFileError, StorageError: a blob cannot be read.
    """
    if sources is None:
        yield from batches
        return
    reader = _Reader(sources)
    try:
        for batch in batches:
            yield from reader.batches(batch)
    finally:
        reader.close()


class _Reader:
    def __init__(self, sources: BlobSources) -> None:
        self._sources = sources
        self._paths: dict[tuple[int, str], TablePaths] = {}
        self._open: OrderedDict[tuple[int, bytes], tuple[BlobLoader, ByteSource]] = OrderedDict()

    def batches(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        columns = list(batch.columns)
        found: dict[int, Lengths] = {}
        sizes = np.zeros(batch.num_rows, np.int64)
        for index, column in enumerate(columns):
            if pat.is_binary(column.type) or pat.is_large_binary(column.type):
                columns[index] = column.cast(pa.large_binary())
                rows, lengths = locators_in(columns[index], self._sources.mark)
                if len(rows):
                    found[index] = rows
                    lengths = np.where(lengths == 0, MAX_COUNTED, lengths)
                    sizes[rows] += np.minimum(lengths, MAX_COUNTED)
        fields = [
            item.with_type(column.type) for item, column in zip(batch.schema, columns, strict=True)
        ]
        schema = pa.schema(fields, batch.schema.metadata)
        whole = pa.RecordBatch.from_arrays(columns, schema=schema)
        if not found:
            yield whole
            return
        del batch, columns
        for piece in cuts(sizes):
            # No name keeps a piece while the next one is read.
            yield self._piece(whole, piece, found)

    def _piece(
        self, batch: pa.RecordBatch, piece: slice, found: Mapping[int, Lengths]
    ) -> pa.RecordBatch:
        columns = list(batch.slice(piece.start, piece.stop - piece.start).columns)
        for index, rows in found.items():
            first, last = np.searchsorted(rows, [piece.start, piece.stop])
            columns[index] = self._loaded(columns[index], rows[first:last] - piece.start)
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _loaded(self, column: pa.Array, rows: Lengths) -> pa.Array:
        """Return a column with the bytes of the locators in some rows."""
        if not len(rows):
            return column
        # A join may repeat a locator.
        distinct = column.take(pa.array(rows)).dictionary_encode()
        parsed = [Locator.of(value.as_buffer().to_pybytes()) for value in distinct.dictionary]
        groups: dict[tuple[int, bytes], list[int]] = {}
        for number, locator in enumerate(parsed):
            groups.setdefault((locator.source, locator.place), []).append(number)
        position = np.empty(len(parsed), np.int64)
        values: list[pa.Array] = []
        for key, members in groups.items():
            position[members] = sum(map(len, values)) + np.arange(len(members))
            values.append(self._read(key, [parsed[number].descriptor for number in members]))
        order = position[distinct.indices.to_numpy()]
        num_read = len(parsed)
        if len(rows) < len(column):
            # Other rows have bytes, or are null.
            others = np.setdiff1d(np.arange(len(column)), rows)
            values.append(column.take(pa.array(others)))
            indices = np.empty(len(column), np.int64)
            indices[rows], indices[others] = order, num_read + np.arange(len(others))
            order = indices
        if len(values) == 1 and np.array_equal(order, np.arange(len(values[0]))):
            return values[0]
        return pa.concat_arrays(values).take(pa.array(order))

    def _read(self, key: tuple[int, bytes], descriptors: Sequence[dict[str, object]]) -> pa.Array:
        loader, source = self._opened(key)
        # The path of the table is a part of the full path of its file.
        with error_context(source.name):
            return loader.load(pa.array(descriptors, BLOB_DESCRIPTOR), _BLOB)

    def _opened(self, key: tuple[int, bytes]) -> tuple[BlobLoader, ByteSource]:
        opened = self._open.pop(key, None)
        if opened is None:
            number, place = key
            root, bases, file = parse_place(place)
            paths = self._paths.get((number, root))
            if paths is None or not bases.keys() <= paths.base_paths.keys():
                known = {} if paths is None else paths.base_paths
                options = self._sources.storage_options[number]
                paths = TablePaths.open(root, options, {**known, **bases})
                self._paths[number, root] = paths
            source = paths.open_data_file(file)
            opened = BlobLoader(paths, file, source), source
        self._open[key] = opened
        while len(self._open) > _MAX_OPEN:
            self._open.popitem(last=False)[1][1].close()
        return opened

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1][1].close()
