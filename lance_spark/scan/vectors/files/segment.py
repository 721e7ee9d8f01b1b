"""Reads the files of one segment of a vector index.

| file | columns | what it has |
| --- | --- | --- |
| `index.idx` | none, or graphs (`lance_spark.scan.vectors.graphs.stored`) | centroids |
| `auxiliary.idx` | `_rowid` uint64, and those of the quantizer | codes, partition after partition |

| metadata of the schema | file | content |
| --- | --- | --- |
| `lance:index` | `index.idx` | JSON ``{"type": "IVF_PQ", "distance_type": "l2"}`` |
| `lance:ivf` | both | number of the global buffer with the partitions (`tensors`) |
| `lance:flat` | `index.idx`, without graphs | JSON list of an empty string for each partition |
| `distance_type` | `auxiliary.idx` | the metric |
| `storage_metadata` | `auxiliary.idx` | JSON list of one string: JSON of the quantizer |

Old releases of pylance write another `index.idx`, and no second file (`legacy`).

Specification: table/index/vector.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.encoding.rows import Rows
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from lance_spark.file.footer import is_legacy, open_tail
from lance_spark.file.open import DataFileReader
from lance_spark.file.reader import FileReader
from lance_spark.scan.indexes.cache import all_rows
from lance_spark.scan.indexes.files import IndexFiles, buffer_in, buffer_of, named
from lance_spark.scan.indexes.row_sets import RowSet
from lance_spark.scan.vectors.files.layout import (
    CODES,
    GRAPHS,
    INDEX,
    IVF_KEY,
    METRIC_KEY,
    ROW_ID,
    STORAGE_KEY,
    TYPE_KEY,
    json_in,
    parsed_json,
    text_in,
)
from lance_spark.scan.vectors.files.legacy import read_legacy, read_legacy_rows
from lance_spark.scan.vectors.files.model import VectorModel
from lance_spark.scan.vectors.graphs.stored import Graphs
from lance_spark.scan.vectors.ivf import Ivf
from lance_spark.scan.vectors.metric import Metric, parse_metric
from lance_spark.scan.vectors.quantizers.by_name import open_quantizer
from lance_spark.scan.vectors.quantizers.columns import has_nulls
from lance_spark.scan.vectors.quantizers.quantizer import Partition, Quantizer
from lance_spark.scan.vectors.quantizers.stored_model import StoredModel
from lance_spark.scan.vectors.tensors import decode_ivf
from lance_spark.table.rows.u64_segments import UInt64Array

#: A column that early releases did not leave out.
_PARTITION = "__ivf_part_id"
#: Most bytes of the metadata of a quantizer: those of old releases have the codebook.
_MAX_STORAGE = 1 << 26

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VectorSegment:
    """An open segment of a vector index.

    Attributes
    ----------
    files : IndexFiles
    model : VectorModel
    """

    files: IndexFiles
    model: VectorModel

    @property
    def index_type(self) -> str:
        """The type, such as IVF_PQ."""
        return self.model.index_type

    @property
    def metric(self) -> Metric:
        """The metric of the index."""
        return self.model.metric

    @property
    def ivf(self) -> Ivf:
        """The partitions; offsets and lengths are rows of the file of codes."""
        return self.model.ivf

    @property
    def quantizer(self) -> Quantizer:
        """What codes the vectors."""
        return self.model.quantizer

    @property
    def has_graphs(self) -> bool:
        """Whether partitions are searched by graphs."""
        return GRAPHS in self.index_type

    @property
    def graphs(self) -> Graphs | None:
        """The graphs of partitions; None for types without graphs."""
        return Graphs(self.files, self.ivf.lengths) if self.has_graphs else None

    def partitions(self, numbers: Sequence[int]) -> list[tuple[UInt64Array, Partition]]:
        """Return the row ids and the codes of partitions; those not in the cache in one read.

        Parameters
        ----------
        numbers : sequence of int
            Distinct.

        Raises
        ------
        CorruptFileError, MissingFileError, UnsupportedEncodingError, StorageError
        """
        return self.files.cached_parts(CODES, numbers, self._open, _size)

    def stored(self, number: int) -> tuple[UInt64Array, pa.RecordBatch]:
        """Return the row ids and the codes of one partition, as the file has them.

        Raises
        ------
        CorruptFileError, MissingFileError, UnsupportedEncodingError, StorageError
        """
        return self.all_stored([number])[0]

    def row_ids(self) -> RowSet | None:
        """Return the ids of all rows; None for an index of an old release.

        Raises
        ------
        CorruptFileError, MissingFileError, UnsupportedEncodingError, StorageError
        """
        if self.model.positions is not None:
            return None
        return self.files.cached(CODES, self._read_row_ids, lambda rows: len(rows.encode()))

    def _read_row_ids(self, files: IndexFiles) -> RowSet:
        with files.opened(CODES) as file:
            (ids,) = file.read([named(file, ROW_ID, pa.uint64())], all_rows(file))
            name = file.source.name
        if has_nulls(ids):
            raise CorruptFileError(f"{name}: row ids must not be null; rebuild the index")
        rows = RowSet.of(np.sort(ids.to_numpy()))
        for bitmap in rows.bitmaps.values():
            # Nearly all rows of a fragment have a vector.
            bitmap.run_optimize()
        return rows

    def _open(self, numbers: Sequence[int]) -> list[tuple[UInt64Array, Partition]]:
        return [
            (ids, self.quantizer.open_partition(codes, self.ivf.centroids[number]))
            for number, (ids, codes) in zip(numbers, self.all_stored(numbers), strict=True)
        ]

    def all_stored(self, numbers: Sequence[int]) -> list[tuple[UInt64Array, pa.RecordBatch]]:
        """Return what `stored` returns for some partitions, in one read."""
        if self.model.positions is not None:
            return read_legacy_rows(self.files, self.model, numbers)
        offsets = self.ivf.offsets[list(numbers)]
        lengths = self.ivf.lengths[list(numbers)]
        order = np.argsort(offsets, kind="stable")
        ranges = [
            np.arange(offset, offset + length)
            for offset, length in zip(offsets[order], lengths[order], strict=True)
        ]
        rows: Rows = np.concatenate(ranges) if ranges else np.empty(0, np.int64)
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            rows = range(int(rows[0]), int(rows[-1]) + 1)
        schema = self.quantizer.fields
        with self.files.opened(CODES) as file:
            # The file can have changed since the partitions were read only if it is damaged.
            all_rows(file)
            fields = [named(file, ROW_ID, pa.uint64())]
            fields += [named(file, field.name, field.type) for field in schema]
            ids, *columns = file.read(fields, rows)
            name = file.source.name
        if any(map(has_nulls, (ids, *columns))):
            raise CorruptFileError(f"{name}: row ids and codes must not be null; rebuild the index")
        row_ids = ids.to_numpy()
        codes = pa.RecordBatch.from_arrays(columns, schema=schema)
        starts = np.empty(len(order), np.int64)
        starts[order] = np.concatenate([[0], np.cumsum(lengths[order])[:-1]])
        return [
            (row_ids[start : start + length], codes.slice(start, length))
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
        ]


def open_segment(files: IndexFiles) -> VectorSegment | None:
    """Open a segment of a vector index; None if it cannot be searched.

    Its rows are then searched exactly: a file is missing, or this release does not know the type of
    the index.

    Raises
    ------
    CorruptFileError, StorageError
    """
    try:
        model = files.cached(INDEX, _read_model, lambda content: content.nbytes)
    except UnsupportedFeatureError as error:
        _LOG.warning("index %r is ignored: %s", files.segment.name, error)
        return None
    return None if model is None else VectorSegment(files, model)


def _read_model(files: IndexFiles) -> VectorModel:
    source = files.source(INDEX)
    tail = open_tail(source)
    if is_legacy(tail):
        with closing(source):
            return read_legacy(tail)
    with closing(FileReader.open(source, tail)) as file:
        name = file.source.name
        header = json_in(file, TYPE_KEY)
        if not isinstance(header, dict) or not isinstance(header.get("type"), str):
            raise CorruptFileError(f"{name}: {TYPE_KEY} has no type of index; rebuild the index")
        index_type = header["type"]
        metric = _metric(header.get("distance_type"), name)
        model = decode_ivf(buffer_in(file, IVF_KEY), file.num_rows, name)
    if not len(model.centroids):
        raise CorruptFileError(f"{name}: it has no centroids; rebuild the index")
    with files.opened(CODES) as file:
        name = file.source.name
        if _metric(text_in(file, METRIC_KEY), name) is not metric:
            raise CorruptFileError(
                f"{name}: {METRIC_KEY} is not {metric.value!r}, as {INDEX} has it; rebuild the "
                "index"
            )
        places = decode_ivf(buffer_in(file, IVF_KEY), file.num_rows, name)
        if places.num_partitions != model.num_partitions:
            raise CorruptFileError(
                f"{name}: its {places.num_partitions} partitions are not the "
                f"{model.num_partitions} of {INDEX}; rebuild the index"
            )
        columns = [field.name for field in file.schema.fields]
        if _PARTITION in columns:
            raise UnsupportedFeatureError(
                f"{name}: graphs of pylance up to 0.22 have rows without vectors; rebuild the index"
            )
        ivf = Ivf(model.centroids, places.offsets, places.lengths, model.loss)
        stored = StoredModel(
            metadata=_storage(file),
            metric=metric,
            centroids=ivf.centroids,
            buffer=partial(buffer_of, file),
            columns=columns,
            name=name,
        )
        quantizer = open_quantizer(index_type, stored)
    return VectorModel(index_type, metric, ivf, quantizer)


def _storage(file: DataFileReader) -> Mapping[str, Any]:
    """Return the metadata of the quantizer."""
    texts = json_in(file, STORAGE_KEY, _MAX_STORAGE)
    inner = texts[0] if isinstance(texts, list) and len(texts) == 1 else None
    content = parsed_json(inner, STORAGE_KEY, file.source.name) if isinstance(inner, str) else None
    if not isinstance(content, dict):
        raise CorruptFileError(
            f"{file.source.name}: {STORAGE_KEY} must be a list of the text of one object; rebuild "
            "the index"
        )
    return content


def _metric(name: object, file_name: str) -> Metric:
    try:
        return parse_metric(name)
    except InvalidInputError as error:
        raise UnsupportedFeatureError(f"{file_name}: {error}") from None


def _size(partition: tuple[UInt64Array, Partition]) -> int:
    ids, codes = partition
    return ids.nbytes + codes.nbytes
