"""The bytes of blobs, from what a data file says of where they are.

=========  ================================================  =======================================================
kind       the bytes are in                                  at
=========  ================================================  =======================================================
0          the data file                                     position
1          data/{name of the data file}/{blob_id}.blob,      position
           shared by several blobs
2          the same, whole                                   0
3          the object that blob_uri names; below the base    position; size 0 stands for the whole object
           path with id blob_id if that is not 0
=========  ================================================  =======================================================

Files before version 2.2 have the first kind only. There a size of 0 is an empty value, and in 2.0 a null if the position is 1.
In the names of files, `blob_id` has 32 binary digits, the lowest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import bitmap
from lance_spark.encoding.v2_1.fixed_width import bounds
from lance_spark.errors import CorruptFileError
from lance_spark.file.blob_fields import PLACE
from lance_spark.file.blob_map import Lengths, replace_blobs, sum_blobs
from lance_spark.file.schema import Field
from lance_spark.storage.source import ByteRange, Bytes, ByteSource
from lance_spark.table.fragment import DataFile
from lance_spark.table.paths import TablePaths

INLINE, PACKED, DEDICATED, EXTERNAL = range(4)
#: Writers start blobs at multiples of 64 bytes.
_PADDING = 64
#: Blobs up to this size are copied out of one read of them and what lies between.
_SMALL = 64 * 1024
_MAX_SIZE = 1 << 48


@dataclass(frozen=True, slots=True)
class Places:
    """Where some blobs are, one entry for each value.

    Attributes
    ----------
    live : bool array
        False for nulls.
    kinds : uint8 array
    positions, sizes : int64 arrays
    blob_ids : int64 array
    uris : pa.Array of string, or None
    """

    live: npt.NDArray[np.bool_]
    kinds: npt.NDArray[np.uint8]
    positions: Lengths
    sizes: Lengths
    blob_ids: Lengths
    uris: pa.Array | None

    @classmethod
    def of(cls, array: pa.Array) -> Places:
        """Parse the values that a data file holds for blobs.

        Raises
        ------
        CorruptFileError
            A kind or size that no blob has.
        """
        count = len(array)
        live = array.is_valid().to_numpy(zero_copy_only=False)
        fields = [array.field(at) for at in range(array.type.num_fields)]
        if array.type.num_fields == PLACE.num_fields:
            positions, sizes = (_unsigned(field, live) for field in fields)
            live = live & ~((sizes == 0) & (positions == 1))
            zeros = np.zeros(count, np.int64)
            return cls(live, zeros.astype(np.uint8), positions, sizes, zeros, None)
        kinds = np.where(live, _filled(fields[0]), 0).astype(np.uint8)
        if int(kinds.max(initial=0)) > EXTERNAL:
            raise CorruptFileError(f"a blob is of kind {int(kinds.max())}, which there is not")
        positions, sizes, blob_ids = (_unsigned(field, live) for field in fields[1:4])
        return cls(live, kinds, positions, sizes, blob_ids, fields[4])

    def uri(self, at: int) -> str:
        """Return the URI of one value."""
        return "" if self.uris is None else self.uris[at].as_py() or ""


class BlobLoader:
    """Reads the bytes of blobs of one data file.

    Parameters
    ----------
    paths : TablePaths
    file : DataFile
    source : ByteSource
        Of that file; the loader does not close it.
    """

    def __init__(self, paths: TablePaths, file: DataFile, source: ByteSource) -> None:
        self._paths = paths
        self._file = file
        self._source = source

    def load(self, array: pa.Array, field: Field) -> pa.Array:
        """Return an array with the bytes in the place of what says where they are.

        Parameters
        ----------
        array : pyarrow.Array
            As the file's reader gave it.
        field : Field
            Whose blobs are large_binary.

        Raises
        ------
        CorruptFileError
            A blob lies outside its file.
        MissingFileError, StorageError
        """
        return replace_blobs(array, field, lambda blobs, _: self._bytes(blobs))

    def sizes(self, array: pa.Array, field: Field) -> Lengths:
        """Return the bytes that the blobs of each row have."""
        return sum_blobs(array, field, self._sizes)

    def open(self, places: Places, at: int) -> tuple[ByteSource, int, int]:
        """Open the file that one blob is in; return it, and position and size of the blob. The caller closes it."""
        kind, size = int(places.kinds[at]), int(places.sizes[at])
        if kind == EXTERNAL:
            source = self._paths.open_external(places.uri(at), int(places.blob_ids[at]))
        elif kind == INLINE:
            source = self._paths.open_data_file(self._file)
        else:
            source = self._paths.open_sidecar(self._file, int(places.blob_ids[at]))
        whole = kind == EXTERNAL and size == 0
        return source, int(places.positions[at]), source.size if whole else size

    def _sizes(self, array: pa.Array) -> Lengths:
        if not pa.types.is_struct(array.type):
            return np.zeros(len(array), np.int64)
        places = Places.of(array)
        return np.where(places.live, self._known(places), 0)

    def _known(self, places: Places) -> Lengths:
        """Return the sizes, with those of whole objects looked up."""
        whole = np.flatnonzero(places.live & (places.kinds == EXTERNAL) & (places.sizes == 0))
        if not len(whole):
            return places.sizes
        sizes = places.sizes.copy()
        for at in whole.tolist():
            source, position, size = self.open(places, at)
            source.close()
            sizes[at] = max(size - position, 0)
        return sizes

    def _bytes(self, array: pa.Array) -> pa.Array:
        if not pa.types.is_struct(array.type):
            return array.cast(pa.large_binary())
        places = Places.of(array)
        sizes = np.where(places.live, self._known(places), 0)
        data, starts = self._gather(places, sizes)
        mask = None if places.live.all() else bitmap(places.live)
        offsets = bounds(sizes)
        if starts is None:
            buffers = [mask, pa.py_buffer(offsets), pa.py_buffer(data)]
            return pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)
        # Every other value is what lies between two blobs.
        edges = np.empty(2 * len(sizes) + 1, np.int64)
        edges[:-1:2], edges[1::2], edges[-1] = starts, starts + sizes, len(data)
        spread = pa.Array.from_buffers(
            pa.large_binary(), 2 * len(sizes), [None, pa.py_buffer(edges), pa.py_buffer(data)]
        )
        picked = spread.take(pa.array(np.arange(0, 2 * len(sizes), 2)))
        return pa.Array.from_buffers(
            pa.large_binary(), len(sizes), [mask, *picked.buffers()[1:]], offset=picked.offset
        )

    def _gather(self, places: Places, sizes: Lengths) -> tuple[Bytes, Lengths | None]:
        """Return all bytes in the order of the values, and where each begins; None for the latter if without gaps."""
        stored = np.flatnonzero(sizes)
        if not len(stored):
            return np.zeros(0, np.uint8), None
        first, length = places.positions[stored], sizes[stored]
        group = _groups(places, stored)
        gap = first[1:] - (first[:-1] + length[:-1])
        near = (gap > 0) & (gap < _PADDING) & (np.maximum(length[1:], length[:-1]) <= _SMALL)
        joined = (group[1:] == group[:-1]) & ((gap == 0) | near)
        begins = np.flatnonzero(np.append(True, ~joined))
        ends = np.append(begins[1:], len(stored)) - 1
        spans = first[ends] + length[ends] - first[begins]
        runs: list[Bytes | None] = [None] * len(begins)
        for number in np.unique(group[begins]).tolist():
            chosen = np.flatnonzero(group[begins] == number)
            ranges = list(map(ByteRange, first[begins[chosen]].tolist(), spans[chosen].tolist()))
            found = self._read(places, int(stored[begins[chosen[0]]]), ranges)
            for run, data in zip(chosen.tolist(), found, strict=True):
                runs[run] = data
        parts = [run for run in runs if run is not None]
        data = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if int(spans.sum()) == int(length.sum()):
            return data, None
        run_of = np.repeat(np.arange(len(begins)), ends - begins + 1)
        places_in = bounds(spans)[run_of] + first - first[begins][run_of]
        starts = np.zeros(len(sizes), np.int64)
        starts[stored] = places_in
        # Offsets must not go back: values without bytes stand where the next one with bytes begins.
        after = np.append(places_in, len(data))
        empty = np.flatnonzero(sizes == 0)
        starts[empty] = after[np.searchsorted(stored, empty)]
        return data, starts

    def _read(self, places: Places, at: int, ranges: Sequence[ByteRange]) -> list[Bytes]:
        if places.kinds[at] == INLINE:
            return self._source.read(ranges)
        source, _, _ = self.open(places, at)
        try:
            return source.read(ranges)
        finally:
            source.close()


def _groups(places: Places, stored: Lengths) -> Lengths:
    """Return a number for each value that is the same for values in one file."""
    kinds = places.kinds[stored].astype(np.int64)
    if not kinds.any():
        return kinds
    ids = np.where(kinds == INLINE, 0, places.blob_ids[stored])
    names = np.zeros(len(stored), np.int64)
    if places.uris is not None and (kinds == EXTERNAL).any():
        chosen = places.uris.take(pa.array(stored)).dictionary_encode()
        names = np.where(kinds == EXTERNAL, chosen.indices.fill_null(0).to_numpy(), 0)
    _, group = np.unique(np.stack([kinds, ids, names], axis=1), axis=0, return_inverse=True)
    return group.reshape(-1).astype(np.int64)


def _filled(array: pa.Array) -> npt.NDArray[np.unsignedinteger]:
    filled = array.fill_null(0) if array.null_count else array
    numbers: npt.NDArray[np.unsignedinteger] = filled.to_numpy()
    return numbers


def _unsigned(array: pa.Array, live: npt.NDArray[np.bool_]) -> Lengths:
    numbers = np.where(live, _filled(array), 0)
    if int(numbers.max(initial=0)) > _MAX_SIZE:
        raise CorruptFileError(f"a blob is said to be at or have {int(numbers.max())} bytes")
    return numbers.astype(np.int64)
