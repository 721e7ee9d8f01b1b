"""Blobs of a scan: their descriptors, the loader of their bytes, and locators in their place."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cache
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.blocks import bitmap, strings_of
from lance_spark.encoding.v2_1.codec import bounds
from lance_spark.errors import CorruptFileError
from lance_spark.file.blobs.fields import PLACE, has_bytes, is_null, locator_mark
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.nested import Lengths, replace_blobs, sum_blobs
from lance_spark.proto import table_pb2
from lance_spark.storage.source import ByteRange, Bytes, ByteSource
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.paths import BasePath, TablePaths

# --------------------------------------------------------------------------------------------------
# The descriptors of blobs: where their bytes are.
#
# =====  ===============================================
# ============================================ kind   the bytes are in
# at =====  ===============================================
# ============================================ 0      the data file
# position 1      data/{name of the data file}/{blob_id}.blob,     position
#        shared by several blobs 2      the same path, one blob                          0 3
# the object at blob_uri; below the base path      position; size 0 stands for the whole object
#        with id blob_id if that is not 0 =====  ===============================================
# ============================================
#
# Files before version 2.2 have the first kind only. There a size of 0 is an empty value, and in 2.0
# a null if the position is 1. In file names, `blob_id` has 32 binary digits, the lowest first.

INLINE, PACKED, DEDICATED, EXTERNAL = range(4)
#: No file is larger.
_MAX_SIZE = 1 << 48


@dataclass(frozen=True, slots=True)
class BlobDescriptors:
    """The locations of some blobs, one entry for each value.

    - `name`: What errors call the data file.
    - `live`: False for nulls.
    """

    name: str
    live: npt.NDArray[np.bool_]
    storage_modes: npt.NDArray[np.uint8]
    positions: Lengths
    sizes: Lengths
    blob_ids: Lengths
    uris: pa.Array | None

    @classmethod
    def of(cls, array: pa.Array, name: str) -> BlobDescriptors:
        """Parse the descriptors of a data file; `name` is what errors call the file.

        Raises CorruptFileError: a kind or size is invalid.
        """
        count = len(array)
        live = array.is_valid().to_numpy(zero_copy_only=False)
        fields = [array.field(i) for i in range(array.type.num_fields)]
        if array.type.num_fields == PLACE.num_fields:
            positions, sizes = (_unsigned(field, live, name) for field in fields)
            live = live & ~((sizes == 0) & (positions == 1))
            zeros = np.zeros(count, np.int64)
            return cls(name, live, zeros.astype(np.uint8), positions, sizes, zeros, None)
        storage_modes = np.where(live, _filled(fields[0]), 0).astype(np.uint8)
        if int(storage_modes.max(initial=0)) > EXTERNAL:
            raise CorruptFileError(
                f"{name}: a blob has kind {int(storage_modes.max())}; kinds are 0 to {EXTERNAL}"
            )
        positions, sizes, blob_ids = (_unsigned(field, live, name) for field in fields[1:4])
        if ((storage_modes == EXTERNAL) & (sizes == 0) & (positions != 0)).any():
            raise CorruptFileError(f"{name}: a blob is an empty range of another object")
        return cls(name, live, storage_modes, positions, sizes, blob_ids, fields[4])

    def uri(self, index: int) -> str:
        """Return the URI of one value. Raises CorruptFileError: the URI is not text."""
        if self.uris is None or not self.uris[index].is_valid:
            return ""
        try:
            return str(self.uris[index].as_py())
        except UnicodeDecodeError:
            raise CorruptFileError(f"{self.name}: the URI of a blob is not UTF-8") from None


def _filled(array: pa.Array) -> npt.NDArray[np.unsignedinteger]:
    filled = array.fill_null(0) if array.null_count else array
    numbers: npt.NDArray[np.unsignedinteger] = filled.to_numpy()
    return numbers


def _unsigned(array: pa.Array, live: npt.NDArray[np.bool_], name: str) -> Lengths:
    numbers = np.where(live, _filled(array), 0)
    if int(numbers.max(initial=0)) > _MAX_SIZE:
        raise CorruptFileError(
            f"{name}: a blob lies outside its file: its position or size is {int(numbers.max())}"
        )
    return numbers.astype(np.int64)


# --------------------------------------------------------------------------------------------------
# Locators to blobs: values that stand for the bytes of blobs on the way from a scan to a writer.
#
# A plan that copies blobs, without a look at their bytes, moves a locator of some hundred bytes in
# place of each large blob. Only the writer of the same plan reads the bytes. A locator is a binary
# value that begins with the mark of its plan. The mark is random, so no value of a user has it.
#
# =====  =====================================================================================
# 16     the mark
# 2      number of the source of the plan: the table that the scan reads
# 2      kind of the descriptor (`blob_loader`)
# 8 x 3  position, size and blob id of the descriptor
# 4, 4   bytes of the place and of the URI
# n      the place, JSON: root of the table, its base paths that are needed, and the data file
# n      the URI of the descriptor
# n      filler: a 64th of the bytes of the blob, at most 1 MiB
# =====  =====================================================================================
#
# Spark divides shuffled rows among tasks by their bytes. Without filler, one task would get all
# blobs of a plan. The filler does not compress, and is the same for each attempt of a task.
#
# Credentials are not part of a locator. Small blobs have no locators, and travel as bytes: a read
# of many of them in their order costs less than reads one by one, after a shuffle.

MARK_BYTES = 16
#: Blobs of more bytes have locators.
MAX_VALUE_BYTES = 256 * 1024
#: About the bytes of a locator without its filler.
_PLAIN_BYTES = 512
#: Filler for a number of bytes of a blob, for a blob of an unknown size, and the most.
_FILLED, _FILLER_OF_OBJECT, _MAX_FILLER = 64, 16 * 1024, 1 << 20
#: Bytes that fillers are taken from. Two fillers that are near one another should not overlap.
_POOL_BYTES = 8 << 20
_HEADER = np.dtype(
    [
        ("mark", "<u8", 2),
        ("source", "<u2"),
        ("kind", "<u2"),
        ("position", "<i8"),
        ("size", "<i8"),
        ("blob_id", "<i8"),
        ("place_bytes", "<u4"),
        ("uri_bytes", "<u4"),
    ]
)
HEADER_BYTES = _HEADER.itemsize


@dataclass(frozen=True, slots=True)
class Mark:
    """What locators of one source begin with.

    - `mark`: The random mark of the plan.
    - `source`: Number of the source.
    """

    mark: bytes
    source: int

    def __bytes__(self) -> bytes:
        return self.mark + self.source.to_bytes(2, "little")

    @classmethod
    def of(cls, value: bytes) -> Mark:
        """Return the mark of its bytes."""
        return cls(value[:MARK_BYTES], int.from_bytes(value[MARK_BYTES:], "little"))


@dataclass(frozen=True, slots=True)
class Locator:
    """One locator.

    - `place`: See `place_of`.
    - `descriptor`: Fields of a descriptor of version 2.2.
    """

    source: int
    place: bytes
    descriptor: dict[str, object]

    @classmethod
    def of(cls, value: bytes) -> Locator:
        """Parse a locator."""
        header = np.frombuffer(value, _HEADER, 1)[0]
        end = HEADER_BYTES + int(header["place_bytes"])
        uri = value[end : end + int(header["uri_bytes"])]
        descriptor = {
            "kind": int(header["kind"]),
            "position": int(header["position"]),
            "size": int(header["size"]),
            "blob_id": int(header["blob_id"]),
            "blob_uri": uri.decode(),
        }
        return cls(int(header["source"]), value[HEADER_BYTES:end], descriptor)


def has_locator(blobs: BlobDescriptors) -> npt.NDArray[np.bool_]:
    """Return which blobs have locators. Those of a whole object do, whose size is not known."""
    is_whole = (blobs.storage_modes == EXTERNAL) & (blobs.sizes == 0)
    located: npt.NDArray[np.bool_] = blobs.live & (is_whole | (blobs.sizes > MAX_VALUE_BYTES))
    return located


def locator_bytes(blobs: BlobDescriptors) -> Lengths:
    """Return about the bytes of the locators of blobs."""
    filler = np.where(blobs.sizes == 0, _FILLER_OF_OBJECT, blobs.sizes // _FILLED)
    lengths: Lengths = _PLAIN_BYTES + np.minimum(filler, _MAX_FILLER)
    return lengths


@cache
def _pool() -> bytes:
    return np.random.default_rng(0).bytes(_POOL_BYTES)


def locators(
    blobs: BlobDescriptors, chosen: Lengths, mark: Mark, paths: TablePaths, file: DataFile
) -> pa.Array:
    """Return locators to some blobs of a data file.

    - `chosen`: Their indices.
    """
    headers = np.zeros(len(chosen), _HEADER)
    headers["mark"] = np.frombuffer(mark.mark, "<u8")
    headers["source"] = mark.source
    headers["kind"] = blobs.storage_modes[chosen]
    headers["position"] = blobs.positions[chosen]
    headers["size"] = blobs.sizes[chosen]
    headers["blob_id"] = blobs.blob_ids[chosen]
    # Only the id of an external blob is that of a base path.
    bases = np.where(blobs.storage_modes[chosen] == EXTERNAL, blobs.blob_ids[chosen], 0)
    distinct_bases, numbers = np.unique(bases, return_inverse=True)
    places = [place_of(paths, file, base) for base in distinct_bases.tolist()]
    uris = [blobs.uri(index).encode() for index in chosen.tolist()]
    headers["place_bytes"] = np.array([len(place) for place in places])[numbers]
    headers["uri_bytes"] = [len(uri) for uri in uris]
    lengths = locator_bytes(blobs)[chosen] - _PLAIN_BYTES
    pool = memoryview(_pool())
    values = []
    for header, number, uri, length in zip(
        map(np.void.tobytes, headers), numbers.tolist(), uris, lengths.tolist(), strict=True
    ):
        start = crc32(uri, crc32(header)) % (_POOL_BYTES - _MAX_FILLER)
        values.append(b"".join((header, places[number], uri, pool[start : start + length])))
    return pa.array(values, pa.large_binary())


def place_of(paths: TablePaths, file: DataFile, base_id: int) -> bytes:
    """Return the place of a data file.

    - `base_id`: The base path of an external blob, 0 for none.
    """
    message = table_pb2.DataFile(
        path=file.path,
        file_major_version=file.file_major_version,
        file_minor_version=file.file_minor_version,
        file_size_bytes=file.file_size_bytes,
        base_id=file.base_id,
    )
    needed = {file.base_id, base_id or None}
    bases = [
        base64.b64encode(base.to_proto().SerializeToString()).decode()
        for number, base in paths.base_paths.items()
        if number in needed
    ]
    content = base64.b64encode(message.SerializeToString()).decode()
    return json.dumps([paths.store.uri, bases, content]).encode()


def parse_place(place: bytes) -> tuple[str, dict[int, BasePath], DataFile]:
    """Return the root of the table, its base paths that are needed, and the data file."""
    root, messages, content = json.loads(place)
    bases = [
        BasePath.from_proto(table_pb2.BasePath.FromString(base64.b64decode(text)))
        for text in messages
    ]
    file = DataFile.from_proto(table_pb2.DataFile.FromString(base64.b64decode(content)))
    return root, {base.id: base for base in bases}, file


def locators_in(array: pa.Array, mark: bytes) -> tuple[Lengths, Lengths]:
    """Return which binary values are locators, and the sizes of what they stand for.

    Returns
    -------
    int64 array
        Indices of locators.
    int64 array
        Their sizes: 0 for whole objects, whose size is not known.
    """
    block = strings_of(array)
    offsets, data = block.offsets.astype(np.int64, copy=False), block.data
    live = array.is_valid().to_numpy(zero_copy_only=False)
    found = np.flatnonzero(live & (np.diff(offsets) >= HEADER_BYTES))
    if not len(found):
        return found, found
    first = data[offsets[found][:, None] + np.arange(MARK_BYTES)]
    found = found[(first == np.frombuffer(mark, np.uint8)).all(axis=1)]
    headers = data[offsets[found][:, None] + np.arange(HEADER_BYTES)]
    return found, np.ascontiguousarray(headers).view(_HEADER).reshape(-1)["size"]


# --------------------------------------------------------------------------------------------------
# The loader of blobs: it reads the bytes that the descriptors in a data file locate.

#: Writers start blobs at multiples of 64 bytes.
_PADDING = 64
#: Up to this size, copying a blob once more costs less than a separate read.
_SMALL = 4 * 1024
#: Most bytes that a blob counts for when the sizes of a batch are added, so that sums fit int64.
MAX_COUNTED = 1 << 30


class BlobLoader:
    """Reads the bytes of blobs of one data file.

    - `source`: The open data file; the loader does not close it.
    - `load_external`: Whether to read blobs that are references to other objects. They are empty
      otherwise.
    """

    def __init__(
        self, paths: TablePaths, file: DataFile, source: ByteSource, *, load_external: bool = True
    ) -> None:
        self._load_external = load_external
        self._paths = paths
        self._file = file
        self._source = source
        # Sizes of whole external objects, by URI and base path id.
        self._object_sizes: dict[tuple[str, int], int] = {}

    @property
    def name(self) -> str:
        """What errors call the data file."""
        return self._source.name

    def load(self, array: pa.Array, field: Field) -> pa.Array:
        """Return an array with the bytes of blobs instead of their descriptors.

        Large blobs of a field of `with_locators` are locators (`blob_locators`).

        - `array`: As the file reader returned it.
        - `field`: A field of `large_binary` blobs.

        Raises MissingFileError, StorageError. Raises CorruptFileError: a blob lies outside its
        file.
        """
        return replace_blobs(array, field, self._values)

    def sizes(self, array: pa.Array, field: Field) -> Lengths:
        """Return the bytes of the blobs of each row. A blob counts for at most 1 GiB."""
        return sum_blobs(array, field, self._sizes)

    def open(self, blobs: BlobDescriptors, index: int) -> tuple[ByteSource, int, int]:
        """Open the file that holds one blob. The caller closes it.

        Returns
        -------
        ByteSource
            The file.
        int, int
            Position and size of the blob in it.
        """
        storage_mode, size = int(blobs.storage_modes[index]), int(blobs.sizes[index])
        if storage_mode == EXTERNAL:
            source = self._paths.open_external(blobs.uri(index), int(blobs.blob_ids[index]))
        elif storage_mode == INLINE:
            source = self._paths.open_data_file(self._file)
        else:
            source = self._paths.open_sidecar(self._file, int(blobs.blob_ids[index]))
        position = int(blobs.positions[index])
        is_whole = storage_mode == EXTERNAL and size == 0
        return source, position, source.size if is_whole else size

    def _values(self, array: pa.Array, field: Field) -> pa.Array:
        if not has_bytes(field):
            return _without_bytes(array)
        mark = locator_mark(field)
        if mark is None or not pa.types.is_struct(array.type):
            return self._bytes(array)
        return self._locators(array, mark)

    def _locators(self, array: pa.Array, mark: bytes) -> pa.Array:
        """Return the bytes of small blobs, and locators to large ones."""
        blobs = BlobDescriptors.of(array, self.name)
        located = has_locator(blobs)
        far, near = np.flatnonzero(located), np.flatnonzero(~located)
        if not len(far):
            return self._bytes(array)
        places = locators(blobs, far, Mark.of(mark), self._paths, self._file)
        if not len(near):
            return places
        order = np.empty(len(array), np.int64)
        order[near], order[far] = np.arange(len(near)), len(near) + np.arange(len(far))
        values = pa.concat_arrays([self._bytes(array.take(pa.array(near))), places])
        return values.take(pa.array(order))

    def _sizes(self, array: pa.Array, field: Field) -> Lengths:
        if not pa.types.is_struct(array.type) or not has_bytes(field):
            return np.zeros(len(array), np.int64)
        blobs = BlobDescriptors.of(array, self.name)
        if locator_mark(field) is not None:
            return np.where(has_locator(blobs), locator_bytes(blobs), blobs.sizes)
        return np.minimum(self._sizes_to_load(blobs), MAX_COUNTED)

    def _sizes_to_load(self, blobs: BlobDescriptors) -> Lengths:
        """Return the bytes to load of each blob, 0 for nulls. Look up sizes of whole objects."""
        if not self._load_external:
            return np.where(blobs.storage_modes == EXTERNAL, 0, blobs.sizes)
        whole_objects = np.flatnonzero(
            blobs.live & (blobs.storage_modes == EXTERNAL) & (blobs.sizes == 0)
        )
        if not len(whole_objects):
            return blobs.sizes
        sizes = blobs.sizes.copy()
        for index in whole_objects.tolist():
            key = blobs.uri(index), int(blobs.blob_ids[index])
            if key not in self._object_sizes:
                source, _, self._object_sizes[key] = self.open(blobs, index)
                source.close()
            sizes[index] = self._object_sizes[key]
        return sizes

    def _bytes(self, array: pa.Array) -> pa.Array:
        if not pa.types.is_struct(array.type):
            return array.cast(pa.large_binary())
        blobs = BlobDescriptors.of(array, self.name)
        sizes = self._sizes_to_load(blobs)
        validity = None if blobs.live.all() else bitmap(blobs.live)
        gathered = self._gather(blobs, np.flatnonzero(sizes), sizes)
        if gathered.in_order:
            buffers = [validity, pa.py_buffer(bounds(sizes)), pa.py_buffer(gathered.data)]
            return pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)
        spread = gathered.spread(len(sizes))
        return pa.Array.from_buffers(
            pa.large_binary(), len(sizes), [validity, *spread.buffers()[1:]], offset=spread.offset
        )

    def _gather(self, blobs: BlobDescriptors, stored: Lengths, sizes: Lengths) -> _Gathered:
        """Read the blobs with indices `stored`. Neighbours in a file are read at once."""
        if not len(stored):
            return _Gathered(np.zeros(0, np.uint8), stored, stored, stored)
        file_of = _file_numbers(blobs, stored)
        runs = _Runs.of(blobs.positions[stored], sizes[stored], file_of)
        if len(runs.begins) * _SMALL > int(runs.spans.sum()):
            # Runs are short: values of several files alternate, or are in no order. Sort them.
            order = np.lexsort((blobs.positions[stored], file_of))
            stored, file_of = stored[order], file_of[order]
            runs = _Runs.of(blobs.positions[stored], sizes[stored], file_of)
        parts: list[Bytes] = [np.zeros(0, np.uint8)] * len(runs.begins)
        by_file = np.argsort(file_of, kind="stable")
        for members in np.split(by_file, np.flatnonzero(np.diff(file_of[by_file])) + 1):
            first = int(stored[members[0]])
            begins = members[runs.begins[runs.run_of[members]] == members]
            source = (
                self._source if blobs.storage_modes[first] == INLINE else self.open(blobs, first)[0]
            )
            try:
                self._check(
                    int(blobs.storage_modes[first]),
                    runs.first[members],
                    runs.length[members],
                    source,
                )
                numbers = runs.run_of[begins]
                ranges = map(ByteRange, runs.first[begins].tolist(), runs.spans[numbers].tolist())
                read = source.read(list(ranges))
            finally:
                if source is not self._source:
                    source.close()
            for number, data in zip(numbers.tolist(), read, strict=True):
                parts[number] = data
        data = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return _Gathered(data, stored, runs.starts(), runs.length)

    def _check(
        self, storage_mode: int, first: Lengths, length: Lengths, source: ByteSource
    ) -> None:
        """Refuse blobs that the file cannot hold, before memory is allocated for them."""
        outside = np.flatnonzero(first + length > source.size)
        if len(outside):
            index = int(outside[0])
            raise CorruptFileError(
                f"{self.name}: a blob lies outside {source.name}: it has {int(length[index])} "
                f"bytes at byte {int(first[index])}, the file has {source.size} bytes"
            )
        # References may name one object many times, but a writer stores its own bytes for one
        # value.
        if storage_mode != EXTERNAL and float(np.sum(length, dtype=np.float64)) > source.size:
            raise CorruptFileError(f"{self.name}: blobs overlap one another in {source.name}")


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of values that are next to one another in one file, and are read at once.

    - `first`, `length`: First byte of each value in its file, and its bytes.
    - `begins`: Index of the first value of each run.
    - `spans`: Bytes of each run.
    - `run_of`: Run of each value.
    """

    first: Lengths
    length: Lengths
    begins: Lengths
    spans: Lengths
    run_of: Lengths

    @classmethod
    def of(cls, first: Lengths, length: Lengths, file_of: Lengths) -> _Runs:
        gap = first[1:] - (first[:-1] + length[:-1])
        is_near = (gap > 0) & (gap < _PADDING) & (np.maximum(length[1:], length[:-1]) <= _SMALL)
        joined = (file_of[1:] == file_of[:-1]) & ((gap == 0) | is_near)
        begins = np.flatnonzero(np.append(True, ~joined))
        ends = np.append(begins[1:], len(first)) - 1
        spans = first[ends] + length[ends] - first[begins]
        run_of = np.repeat(np.arange(len(begins)), ends - begins + 1)
        return cls(first, length, begins, spans, run_of)

    def starts(self) -> Lengths:
        """Return the first byte of each value in the bytes of all runs."""
        return bounds(self.spans)[self.run_of] + self.first - self.first[self.begins][self.run_of]


@dataclass(frozen=True, slots=True)
class _Gathered:
    """The bytes of the values with indices `stored`, which begin at `starts`, increasing."""

    data: Bytes
    stored: Lengths
    starts: Lengths
    length: Lengths

    @property
    def in_order(self) -> bool:
        """Whether the bytes are exactly the values in their order, without gaps."""
        return len(self.data) == int(self.length.sum()) and bool((np.diff(self.stored) > 0).all())

    def spread(self, count: int) -> pa.Array:
        """Return `count` values, empty where nothing is stored."""
        stored = len(self.stored)
        # Every second value is the gap between two blobs, and the last value is empty.
        edges = np.full(2 * stored + 2, len(self.data), np.int64)
        edges[: 2 * stored : 2] = self.starts
        edges[1 : 2 * stored : 2] = self.starts + self.length
        buffers = [None, pa.py_buffer(edges), pa.py_buffer(self.data)]
        values = pa.Array.from_buffers(pa.large_binary(), 2 * stored + 1, buffers)
        indices = np.full(count, 2 * stored, np.int64)
        indices[self.stored] = np.arange(0, 2 * stored, 2)
        return values.take(pa.array(indices))


def _without_bytes(array: pa.Array) -> pa.Array:
    """Return an empty value for each blob that is not null."""
    nulls = is_null(array)
    validity = bitmap(~nulls.to_numpy(zero_copy_only=False)) if nulls.true_count else None
    offsets = pa.py_buffer(np.zeros(len(array) + 1, np.int64))
    buffers = [validity, offsets, pa.py_buffer(b"")]
    return pa.Array.from_buffers(pa.large_binary(), len(array), buffers)


def _file_numbers(blobs: BlobDescriptors, stored: Lengths) -> Lengths:
    """Return for each value a number from 0 on. Values in one file have the same number."""
    storage_modes = blobs.storage_modes[stored].astype(np.int64)
    if not storage_modes.any():
        return storage_modes
    # The kind is part of the key, because a damaged file can use blob id 0 for a sidecar file.
    keys = np.where(storage_modes == INLINE, 0, (blobs.blob_ids[stored] << 2) | storage_modes)
    _, numbers = np.unique(keys, return_inverse=True)
    is_external = storage_modes == EXTERNAL
    if blobs.uris is not None and is_external.any():
        uris = blobs.uris.take(pa.array(stored)).fill_null("").dictionary_encode().indices
        keys = numbers * (len(uris) + 1) + np.where(is_external, uris.to_numpy() + 1, 0)
        _, numbers = np.unique(keys, return_inverse=True)
    return numbers.reshape(-1).astype(np.int64)
