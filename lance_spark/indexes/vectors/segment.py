"""Reads the files of one segment of a vector index.

| file | columns | what it has |
| --- | --- | --- |
| `index.idx` | none, or graphs (`lance_spark.indexes.vectors.hnsw`) | centroids |
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
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError

from lance_spark.encoding.rows import Rows
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from lance_spark.file.footer import Tail, is_legacy, open_tail
from lance_spark.file.open import DataFileReader
from lance_spark.file.reader import FileReader
from lance_spark.file.writer import FileWriter
from lance_spark.indexes.cache import all_rows
from lance_spark.indexes.files import IndexFiles, SegmentWriter, buffer_in, buffer_of, named
from lance_spark.indexes.row_sets import RowSet
from lance_spark.indexes.vectors.columns import Int64Array, Ivf, Metric, Vectors, parse_metric
from lance_spark.indexes.vectors.files import (
    CODES,
    FLAT_KEY,
    GRAPHS,
    INDEX,
    IVF_KEY,
    METRIC_KEY,
    ROW_ID,
    STORAGE_KEY,
    TYPE_KEY,
    decode_ivf,
    decode_tensor,
    encode_ivf,
    json_in,
    json_text,
    parsed_json,
    text_in,
)
from lance_spark.indexes.vectors.hnsw import Graphs
from lance_spark.indexes.vectors.quantizers.flat import FlatQuantizer
from lance_spark.indexes.vectors.quantizers.product import ProductQuantizer
from lance_spark.indexes.vectors.quantizers.quantizer import (
    Partition,
    Quantizer,
    StoredModel,
    has_nulls,
    vector_list,
)
from lance_spark.indexes.vectors.quantizers.rabit import RabitQuantizer
from lance_spark.indexes.vectors.quantizers.scalar import ScalarQuantizer
from lance_spark.proto import index_pb2 as pb
from lance_spark.storage.source import ByteRange
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# The model of a vector index, which a build learns from a sample or a reader takes from files.


@dataclass(frozen=True, slots=True, eq=False)
class VectorModel:
    """What the segments of an index have in common, and the partitions of a segment.

    A reader keeps it in the cache. The tasks of a build get it by pickle.

    - `index_type`: Such as IVF_PQ.
    - `ivf`: Partitions without rows, if the model belongs to no segment.
    - `positions` (int64 array or None): Positions of the partitions in a file of an old release
      (`legacy`).
    """

    index_type: str
    metric: Metric
    ivf: Ivf
    quantizer: Quantizer
    positions: Int64Array | None = None

    @property
    def centroids(self) -> Vectors:
        """The centroids: shape (partitions, dimension), in the type of the column."""
        return self.ivf.centroids

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        buffers = sum(map(len, self.quantizer.buffers()))
        return self.centroids.nbytes + self.ivf.offsets.nbytes + self.ivf.lengths.nbytes + buffers

    def is_same(self, other: VectorModel) -> bool:
        """Return whether codes of the other model are codes of this one."""
        return (
            self.index_type == other.index_type
            and self.metric is other.metric
            and self.centroids.dtype == other.centroids.dtype
            and np.array_equal(self.centroids, other.centroids)
            and _content(self.quantizer) == _content(other.quantizer)
        )


def _content(quantizer: Quantizer) -> tuple[object, ...]:
    """Return all that codes depend on."""
    # Files can have the same codes in different orders.
    buffers = quantizer.buffers()
    metadata = dict(quantizer.metadata(range(len(buffers))))
    for name in ("transposed", "packed"):
        metadata.pop(name, None)
    return quantizer.name, metadata, tuple(buffers)


# --------------------------------------------------------------------------------------------------
# The quantizer of an index file.

#: Functions that open a quantizer, by index type.
_OPENERS: dict[str, Callable[[StoredModel], Quantizer]] = {
    "IVF_FLAT": FlatQuantizer.open,
    "IVF_SQ": ScalarQuantizer.open,
    "IVF_PQ": ProductQuantizer.open,
    "IVF_RQ": RabitQuantizer.open,
    "IVF_HNSW_FLAT": FlatQuantizer.open,
    "IVF_HNSW_SQ": ScalarQuantizer.open,
    "IVF_HNSW_PQ": ProductQuantizer.open,
}


def open_quantizer(index_type: str, stored: StoredModel) -> Quantizer:
    """Return the quantizer of an index file.

    Raises UnsupportedFeatureError: the index has an unknown type. Raises CorruptFileError: the
    metadata are damaged.
    """
    opener = _OPENERS.get(index_type)
    if opener is None:
        names = ", ".join(_OPENERS)
        raise UnsupportedFeatureError(
            f"{stored.name}: an index of type {index_type[:40]!r} is not one of {names}"
        )
    return opener(stored)


# --------------------------------------------------------------------------------------------------
# IVF_PQ indexes in one file, as pylance up to 0.24 writes them.
#
# Later releases still write it with `index_file_version="LEGACY"`. `index.idx` has, in this order:
#
# | part | content |
# | --- | --- |
# | of each partition | the codes of its rows, row after row, then the row ids as u64 |
# | u32, message | length of the `Index` message of `protos/index.proto`, and the message |
# | u64 | position of that length |
# | u16, u16, `LANC` | version 0.0 or 0.1 |
#
# The stages of the message are the partitions, whose offsets are positions in the file, and the
# codebook. There are 8 bits for each code.

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_ID_BYTES = 8
_NUM_BITS = 8
_METRICS = {
    pb.L2: Metric.L2,
    pb.Cosine: Metric.COSINE,
    pb.Dot: Metric.DOT,
}


def read_legacy(tail: Tail) -> VectorModel:
    """Return what the file has beside rows.

    Raises CorruptFileError. Raises UnsupportedFeatureError: the index has another type, or its
    vectors are rotated.
    """
    name = tail.name
    end = tail.size - _FOOTER.size
    if end < _LENGTH.size:
        raise CorruptFileError(f"{name}: {tail.size} bytes are too few; rebuild the index")
    start = _FOOTER.unpack(tail.read([ByteRange(end, _FOOTER.size)])[0].tobytes())[0]
    if start > end - _LENGTH.size:
        raise CorruptFileError(f"{name}: its metadata start after its end; rebuild the index")
    (size,) = _LENGTH.unpack(tail.read([ByteRange(start, _LENGTH.size)])[0].tobytes())
    first = start + _LENGTH.size
    if first + size != end:
        raise CorruptFileError(f"{name}: its metadata do not end at its footer; rebuild the index")
    (data,) = tail.read([ByteRange(first, size)])
    try:
        message = pb.Index.FromString(data.tobytes())
    except DecodeError as error:
        raise CorruptFileError(f"{name}: its metadata are damaged: {error}") from None
    index = message.vector_index
    metric = _METRICS.get(index.metric_type)
    names = [stage.WhichOneof("stage") for stage in index.stages]
    if names != ["ivf", "pq"] or metric is None or index.stages[1].pq.num_bits != _NUM_BITS:
        raise UnsupportedFeatureError(
            f"{name}: an index of an old release must be an IVF_PQ index of 8 bits and without a "
            "rotation; rebuild it"
        )
    stages = list(index.stages)
    centroids, lengths = _centroids(stages[0].ivf, name)
    quantizer = ProductQuantizer(metric, _codebook(stages[1].pq, name), transposed=False)
    if quantizer.dimension != centroids.shape[1]:
        raise CorruptFileError(
            f"{name}: codes of {quantizer.dimension} items do not belong to centroids of "
            f"{centroids.shape[1]}; rebuild the index"
        )
    positions = _positions(stages[0].ivf, lengths * (quantizer.code_bytes + _ID_BYTES), start, name)
    ivf = Ivf(centroids, np.cumsum(lengths) - lengths, lengths)
    return VectorModel("IVF_PQ", metric, ivf, quantizer, positions)


def read_legacy_rows(
    files: IndexFiles, model: VectorModel, numbers: Sequence[int]
) -> list[tuple[UInt64Array, pa.RecordBatch]]:
    """Return the row ids and the codes of partitions.

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    assert model.positions is not None
    assert isinstance(model.quantizer, ProductQuantizer)
    width = model.quantizer.code_bytes
    ranges = []
    for number in numbers:
        start, count = int(model.positions[number]), int(model.ivf.lengths[number])
        ranges.append(ByteRange(start, count * (width + _ID_BYTES)))
    with closing(files.source(INDEX)) as source:
        parts = source.read(ranges)
    partitions = []
    for part in parts:
        count = len(part) // (width + _ID_BYTES)
        codes, ids = part[: count * width], part[count * width :]
        batch = pa.RecordBatch.from_arrays(
            [vector_list(codes.reshape(count, width))], schema=model.quantizer.fields
        )
        partitions.append((np.frombuffer(ids.tobytes(), "<u8"), batch))
    return partitions


def _centroids(message: pb.IVF, name: str) -> tuple[Vectors, Int64Array]:
    """Return the centroids, and the number of rows of each partition."""
    count = len(message.lengths)
    if message.HasField("centroids_tensor"):
        centroids = decode_tensor(message.centroids_tensor, 2, name)
    else:
        centroids = _rows(np.array(message.centroids, np.float32), count, name)
    if not count or len(centroids) != count or not centroids.shape[1]:
        raise CorruptFileError(
            f"{name}: {len(centroids)} centroids do not belong to {count} partitions; rebuild the "
            "index"
        )
    return centroids, np.fromiter(message.lengths, np.int64, count)


def _codebook(message: pb.PQ, name: str) -> Vectors:
    codewords = 1 << _NUM_BITS
    if message.HasField("codebook_tensor"):
        flat = decode_tensor(message.codebook_tensor, 2, name).reshape(-1)
    else:
        flat = np.array(message.codebook, np.float32)
    count = message.num_sub_vectors
    rows = _rows(flat, codewords * count, name)
    if flat.dtype.kind != "f" or not rows.shape[1] or message.dimension != count * rows.shape[1]:
        raise CorruptFileError(
            f"{name}: a codebook of {len(flat)} numbers does not belong to {count} sub-vectors of "
            f"{message.dimension} items; rebuild the index"
        )
    return rows.reshape(count, codewords, rows.shape[1])


def _rows(items: npt.NDArray[np.float32], count: int, name: str) -> Vectors:
    if not count or len(items) % count:
        raise CorruptFileError(
            f"{name}: {len(items)} numbers are not {count} vectors; rebuild the index"
        )
    return items.reshape(count, len(items) // count)


def _positions(message: pb.IVF, sizes: Int64Array, end: int, name: str) -> Int64Array:
    """Return the positions of partitions, which do not overlap."""
    positions = np.fromiter(message.offsets, np.uint64, len(message.offsets))
    if len(positions) == len(sizes):
        order = np.argsort(positions, kind="stable")
        starts = np.append(positions[order], np.uint64(end))
        # Both are less than 2**63 if the positions are inside the file.
        if (
            starts.max() == end
            and (starts[:-1].astype(np.int64) + sizes[order] <= starts[1:]).all()
        ):
            return positions.astype(np.int64)
    raise CorruptFileError(
        f"{name}: its {len(sizes)} partitions overlap, or lie outside the file; rebuild the index"
    )


# --------------------------------------------------------------------------------------------------
# Reads the files of one segment of a vector index.

#: A column that early releases did not leave out.
_PARTITION = "__ivf_part_id"
#: Most bytes of the metadata of a quantizer: those of old releases have the codebook.
_MAX_STORAGE = 1 << 26

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VectorSegment:
    """An open segment of a vector index."""

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

        - `numbers`: Distinct.

        Raises CorruptFileError, MissingFileError, UnsupportedEncodingError, StorageError.
        """
        return self.files.cached_parts(CODES, numbers, self._open, _size)

    def stored(self, number: int) -> tuple[UInt64Array, pa.RecordBatch]:
        """Return the row ids and the codes of one partition, as the file has them.

        Raises CorruptFileError, MissingFileError, UnsupportedEncodingError, StorageError.
        """
        return self.all_stored([number])[0]

    def row_ids(self) -> RowSet | None:
        """Return the ids of all rows; None for an index of an old release.

        Raises CorruptFileError, MissingFileError, UnsupportedEncodingError, StorageError.
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

    Raises CorruptFileError, StorageError.
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


# --------------------------------------------------------------------------------------------------
# Writes the files of a vector index; `segment` has their layout.

_MARKER = pa.schema([pa.field("__flat_marker", pa.uint64(), nullable=False)])


class VectorWriter:
    """Writes the codes of a segment, partition after partition.

    - `segment`: Completes the files.
    - `model`: For a type with graphs, the caller writes `index.idx`.
    - `loss`: Sum of the distances of vectors from their centroids.
    """

    def __init__(
        self, segment: SegmentWriter, model: VectorModel, loss: float | None = None
    ) -> None:
        self._segment = segment
        self._model = model
        self._loss = loss
        self._lengths = np.zeros(len(model.centroids), np.int64)
        self._next = 0
        self._schema = pa.schema([pa.field(ROW_ID, pa.uint64()), *model.quantizer.fields])
        self._codes: FileWriter = segment.create(CODES, self._schema)

    def write(self, number: int, ids: UInt64Array, codes: pa.RecordBatch) -> pa.RecordBatch:
        """Add all rows of one partition.

        - `number`: Greater than that of the partition before.
        - `ids` (uint64 array): Row ids.
        - `codes`: As `Quantizer.encode` returns them.

        Returns the codes in the order of bytes of the file.
        """
        assert number >= self._next, f"partition {number} must not follow {self._next - 1}"
        self._next = number + 1
        self._lengths[number] = len(ids)
        stored = self._model.quantizer.stored(codes)
        columns = [pa.array(ids, pa.uint64()), *stored.columns]
        self._codes.write(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        return stored

    def finish(self) -> None:
        """Write the partitions and the quantizer."""
        offsets = np.cumsum(self._lengths) - self._lengths
        codes, quantizer = self._codes, self._model.quantizer
        places = encode_ivf(offsets.tolist(), self._lengths.tolist(), loss=self._loss)
        codes.set_metadata(IVF_KEY, str(codes.add_global_buffer(places)))
        buffers = [codes.add_global_buffer(data) for data in quantizer.buffers()]
        codes.set_metadata(METRIC_KEY, self._model.metric.value)
        codes.set_metadata(STORAGE_KEY, json_text([json_text(quantizer.metadata(buffers))]))
        self._segment.complete(CODES)
        if GRAPHS not in self._model.index_type:
            index = self._segment.create(INDEX, _MARKER)
            index.set_metadata(FLAT_KEY, json_text([""] * len(self._model.centroids)))
            set_index_metadata(index, self._model, loss=self._loss)
            self._segment.complete(INDEX)


def set_index_metadata(
    writer: FileWriter,
    model: VectorModel,
    lengths: npt.NDArray[np.int64] | None = None,
    loss: float | None = None,
) -> None:
    """Write the metadata of `index.idx` that all types have.

    - `lengths` (int64 array): Rows of each partition in the file; 0 by default.
    """
    if lengths is None:
        lengths = np.zeros(len(model.centroids), np.int64)
    offsets = np.cumsum(lengths) - lengths
    ivf = encode_ivf(offsets.tolist(), lengths.tolist(), model.centroids, loss)
    types = {"type": model.index_type, "distance_type": model.metric.value}
    writer.set_metadata(TYPE_KEY, json_text(types))
    writer.set_metadata(IVF_KEY, str(writer.add_global_buffer(ivf)))
