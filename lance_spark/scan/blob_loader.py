"""The loader of blobs: it reads the bytes that the descriptors in a data file locate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import bitmap
from lance_spark.encoding.v2_1.fixed_width import bounds
from lance_spark.errors import CorruptFileError
from lance_spark.file.blobs.fields import has_bytes, is_null, locator_mark
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.nested import Lengths, replace_blobs, sum_blobs
from lance_spark.scan.blob_descriptors import EXTERNAL, INLINE, BlobDescriptors
from lance_spark.scan.blob_locators import Mark, has_locator, locator_bytes, locators
from lance_spark.storage.source import ByteRange, Bytes, ByteSource
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.paths import TablePaths

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
