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

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import bitmap
from lance_spark.encoding.v2_1.fixed_width import bounds
from lance_spark.errors import CorruptFileError
from lance_spark.file.blobs.fields import PLACE
from lance_spark.file.blobs.mapping import Lengths, replace_blobs, sum_blobs
from lance_spark.file.schema.schema import Field
from lance_spark.storage.source import ByteRange, Bytes, ByteSource
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.paths import TablePaths

INLINE, PACKED, DEDICATED, EXTERNAL = range(4)
#: Writers start blobs at multiples of 64 bytes.
_PADDING = 64
#: Up to this size, another copy of a blob costs less than a read of its own.
_SMALL = 4 * 1024
#: No file is larger.
_MAX_SIZE = 1 << 48
#: Sizes are added up for whole batches to see how many rows go into one: each counts for no more than this.
_MUCH = 1 << 30


@dataclass(frozen=True, slots=True)
class BlobDescriptors:
    """Where some blobs are, one entry for each value.

    Attributes
    ----------
    name : str
        What errors call the data file.
    live : bool array
        False for nulls.
    kinds : uint8 array
    positions, sizes : int64 arrays
    blob_ids : int64 array
    uris : pa.Array of string, or None
    """

    name: str
    live: npt.NDArray[np.bool_]
    kinds: npt.NDArray[np.uint8]
    positions: Lengths
    sizes: Lengths
    blob_ids: Lengths
    uris: pa.Array | None

    @classmethod
    def of(cls, array: pa.Array, name: str) -> BlobDescriptors:
        """Parse the values that a data file holds for blobs; `name` is what errors call the file.

        Raises
        ------
        CorruptFileError
            A kind or size that no blob has.
        """
        count = len(array)
        live = array.is_valid().to_numpy(zero_copy_only=False)
        fields = [array.field(at) for at in range(array.type.num_fields)]
        if array.type.num_fields == PLACE.num_fields:
            positions, sizes = (_unsigned(field, live, name) for field in fields)
            live = live & ~((sizes == 0) & (positions == 1))
            zeros = np.zeros(count, np.int64)
            return cls(name, live, zeros.astype(np.uint8), positions, sizes, zeros, None)
        kinds = np.where(live, _filled(fields[0]), 0).astype(np.uint8)
        if int(kinds.max(initial=0)) > EXTERNAL:
            raise CorruptFileError(
                f"{name}: a blob is of kind {int(kinds.max())}, which there is not"
            )
        positions, sizes, blob_ids = (_unsigned(field, live, name) for field in fields[1:4])
        if ((kinds == EXTERNAL) & (sizes == 0) & (positions != 0)).any():
            raise CorruptFileError(f"{name}: a blob is a range of no bytes of another object")
        return cls(name, live, kinds, positions, sizes, blob_ids, fields[4])

    def uri(self, at: int) -> str:
        """Return the URI of one value.

        Raises
        ------
        CorruptFileError
            It is no text.
        """
        if self.uris is None or not self.uris[at].is_valid:
            return ""
        try:
            return str(self.uris[at].as_py())
        except UnicodeDecodeError:
            raise CorruptFileError(f"{self.name}: a blob refers to what is not UTF-8") from None


class BlobLoader:
    """Reads the bytes of blobs of one data file.

    Parameters
    ----------
    paths : TablePaths
    file : DataFile
    source : ByteSource
        Of that file; the loader does not close it.
    load_external : bool
        Whether to read the bytes of references to other objects; they count as empty otherwise.
    """

    def __init__(
        self,
        paths: TablePaths,
        file: DataFile,
        source: ByteSource,
        *,
        load_external: bool = True,
    ) -> None:
        self._load_external = load_external
        self._paths = paths
        self._file = file
        self._source = source
        self._whole: dict[tuple[str, int], int] = {}

    @property
    def name(self) -> str:
        """What errors call the data file."""
        return self._source.name

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
        """Return the bytes that the blobs of each row have; of a blob beyond 1 GiB, that much."""
        return sum_blobs(array, field, self._sizes)

    def open(self, places: BlobDescriptors, at: int) -> tuple[ByteSource, int, int]:
        """Open the file that one blob is in; return it, and position and size of the blob. The caller closes it."""
        kind, size = int(places.kinds[at]), int(places.sizes[at])
        if kind == EXTERNAL:
            source = self._paths.open_external(places.uri(at), int(places.blob_ids[at]))
        elif kind == INLINE:
            source = self._paths.open_data_file(self._file)
        else:
            source = self._paths.open_sidecar(self._file, int(places.blob_ids[at]))
        position = int(places.positions[at])
        whole = kind == EXTERNAL and size == 0
        return source, position, source.size if whole else size

    def _sizes(self, array: pa.Array) -> Lengths:
        if not pa.types.is_struct(array.type):
            return np.zeros(len(array), np.int64)
        places = BlobDescriptors.of(array, self.name)
        return np.minimum(self._known(places), _MUCH)

    def _known(self, places: BlobDescriptors) -> Lengths:
        """Return the sizes, with those of whole objects looked up; 0 for nulls."""
        if not self._load_external:
            return np.where(places.kinds == EXTERNAL, 0, places.sizes)
        whole = np.flatnonzero(places.live & (places.kinds == EXTERNAL) & (places.sizes == 0))
        if not len(whole):
            return places.sizes
        sizes = places.sizes.copy()
        for at in whole.tolist():
            key = places.uri(at), int(places.blob_ids[at])
            if key not in self._whole:
                source, _, self._whole[key] = self.open(places, at)
                source.close()
            sizes[at] = self._whole[key]
        return sizes

    def _bytes(self, array: pa.Array) -> pa.Array:
        if not pa.types.is_struct(array.type):
            return array.cast(pa.large_binary())
        places = BlobDescriptors.of(array, self.name)
        sizes = self._known(places)
        mask = None if places.live.all() else bitmap(places.live)
        found = self._gather(places, np.flatnonzero(sizes), sizes)
        if found.in_order:
            buffers = [mask, pa.py_buffer(bounds(sizes)), pa.py_buffer(found.data)]
            return pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)
        picked = found.pick(len(sizes))
        return pa.Array.from_buffers(
            pa.large_binary(), len(sizes), [mask, *picked.buffers()[1:]], offset=picked.offset
        )

    def _gather(self, places: BlobDescriptors, stored: Lengths, sizes: Lengths) -> _Gathered:
        """Read the values `stored`, those next to one another in a file by one read."""
        if not len(stored):
            return _Gathered(np.zeros(0, np.uint8), stored, stored, stored)
        group = _groups(places, stored)
        runs = _Runs.of(places.positions[stored], sizes[stored], group)
        if len(runs.begins) * _SMALL > int(runs.spans.sum()):
            # Many reads for little: values of several files take turns, or come in any order.
            order = np.lexsort((places.positions[stored], group))
            stored, group = stored[order], group[order]
            runs = _Runs.of(places.positions[stored], sizes[stored], group)
        parts: list[Bytes] = [np.zeros(0, np.uint8)] * len(runs.begins)
        turn = np.argsort(group, kind="stable")
        for members in np.split(turn, np.flatnonzero(np.diff(group[turn])) + 1):
            one = int(stored[members[0]])
            chosen = members[runs.begins[runs.run_of[members]] == members]
            source = self._source if places.kinds[one] == INLINE else self.open(places, one)[0]
            try:
                self._check(
                    int(places.kinds[one]), runs.first[members], runs.length[members], source
                )
                numbers = runs.run_of[chosen]
                ranges = map(ByteRange, runs.first[chosen].tolist(), runs.spans[numbers].tolist())
                found = source.read(list(ranges))
            finally:
                if source is not self._source:
                    source.close()
            for number, data in zip(numbers.tolist(), found, strict=True):
                parts[number] = data
        data = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return _Gathered(data, stored, runs.starts(), runs.length)

    def _check(self, kind: int, first: Lengths, length: Lengths, source: ByteSource) -> None:
        """Refuse what the file does not hold, before there is memory for it."""
        outside = np.flatnonzero(first + length > source.size)
        if len(outside):
            at = int(outside[0])
            raise CorruptFileError(
                f"{self.name}: a blob is said to be {int(length[at])} bytes from byte {int(first[at])} on of "
                f"{source.name}, which has {source.size}"
            )
        # References may name one object many times; what a writer stored, it stored for one value.
        if kind != EXTERNAL and float(np.sum(length, dtype=np.float64)) > source.size:
            raise CorruptFileError(
                f"{self.name}: blobs are said to lie over one another in {source.name}"
            )


@dataclass(frozen=True, slots=True)
class _Runs:
    """Values that are read together, because they are next to one another in one file.

    Attributes
    ----------
    first, length : int64 arrays
        Of each value, in its file.
    begins : int64 array
        The value that each run begins with.
    spans : int64 array
        Bytes of each run.
    run_of : int64 array
        Run of each value.
    """

    first: Lengths
    length: Lengths
    begins: Lengths
    spans: Lengths
    run_of: Lengths

    @classmethod
    def of(cls, first: Lengths, length: Lengths, group: Lengths) -> _Runs:
        gap = first[1:] - (first[:-1] + length[:-1])
        near = (gap > 0) & (gap < _PADDING) & (np.maximum(length[1:], length[:-1]) <= _SMALL)
        joined = (group[1:] == group[:-1]) & ((gap == 0) | near)
        begins = np.flatnonzero(np.append(True, ~joined))
        ends = np.append(begins[1:], len(first)) - 1
        spans = first[ends] + length[ends] - first[begins]
        run_of = np.repeat(np.arange(len(begins)), ends - begins + 1)
        return cls(first, length, begins, spans, run_of)

    def starts(self) -> Lengths:
        """Return where each value is in the bytes of all runs."""
        return bounds(self.spans)[self.run_of] + self.first - self.first[self.begins][self.run_of]


@dataclass(frozen=True, slots=True)
class _Gathered:
    """Bytes that hold the values `stored`, which begin at `starts`, increasing."""

    data: Bytes
    stored: Lengths
    starts: Lengths
    length: Lengths

    @property
    def in_order(self) -> bool:
        """Whether the bytes are those of the values, in their order, and no others."""
        return len(self.data) == int(self.length.sum()) and bool((np.diff(self.stored) > 0).all())

    def pick(self, count: int) -> pa.Array:
        """Return `count` values, empty where nothing is stored."""
        stored = len(self.stored)
        # Every other value is what lies between two blobs, and the last one is empty.
        edges = np.full(2 * stored + 2, len(self.data), np.int64)
        edges[: 2 * stored : 2] = self.starts
        edges[1 : 2 * stored : 2] = self.starts + self.length
        buffers = [None, pa.py_buffer(edges), pa.py_buffer(self.data)]
        spread = pa.Array.from_buffers(pa.large_binary(), 2 * stored + 1, buffers)
        picks = np.full(count, 2 * stored, np.int64)
        picks[self.stored] = np.arange(0, 2 * stored, 2)
        return spread.take(pa.array(picks))


def _groups(places: BlobDescriptors, stored: Lengths) -> Lengths:
    """Return a number from 0 on for each value that is the same for values in one file."""
    kinds = places.kinds[stored].astype(np.int64)
    if not kinds.any():
        return kinds
    # The ids of files of blobs are beyond 0, but that is their writer's word.
    keys = np.where(kinds == INLINE, 0, (places.blob_ids[stored] << 2) | kinds)
    _, group = np.unique(keys, return_inverse=True)
    external = kinds == EXTERNAL
    if places.uris is not None and external.any():
        names = places.uris.take(pa.array(stored)).fill_null("").dictionary_encode().indices
        keys = group * (len(names) + 1) + np.where(external, names.to_numpy() + 1, 0)
        _, group = np.unique(keys, return_inverse=True)
    return group.reshape(-1).astype(np.int64)


def _filled(array: pa.Array) -> npt.NDArray[np.unsignedinteger]:
    filled = array.fill_null(0) if array.null_count else array
    numbers: npt.NDArray[np.unsignedinteger] = filled.to_numpy()
    return numbers


def _unsigned(array: pa.Array, live: npt.NDArray[np.bool_], name: str) -> Lengths:
    numbers = np.where(live, _filled(array), 0)
    if int(numbers.max(initial=0)) > _MAX_SIZE:
        raise CorruptFileError(
            f"{name}: a blob is said to be at byte {int(numbers.max())}, or to have so many; no file is that large"
        )
    return numbers.astype(np.int64)
