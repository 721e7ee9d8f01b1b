"""Bytes of blobs, written as they come: into the data file, or into files beside it.

==============================  ===========  ===================================================================
bytes of a value                kind         written to
==============================  ===========  ===================================================================
any, before version 2.2         -            the data file
up to 64 KiB                    0 inline     the data file
up to 4 MiB                     1 packed     a file of many blobs, closed when it has 1 GiB
more                            2 dedicated  a file of its own
none, but a URI                 3 external   nowhere: the URI is kept
==============================  ===========  ===================================================================

The limits are those of pylance, and the field metadata that changes them too. Values that stand together in memory are
written together, without padding between them. Packed files are shared by all columns of a data file; ids count up from 1.

What is left of a value is 16 to 25 bytes that say where it is, which is what pages hold: memory does not grow with the blobs.

Specification: format/file, "Blobs".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import bitmap
from lance_spark.errors import InvalidInputError
from lance_spark.file.blob_fields import FIRST_V2, PLACE
from lance_spark.file.blob_map import Lengths, replace_blobs
from lance_spark.file.footer import align_output
from lance_spark.file.schema import BLOB_DESCRIPTOR, Field
from lance_spark.storage.output import OutputFile
from lance_spark.storage.source import ByteRange, ByteSource

INLINE_BYTES = 64 * 1024
PACKED_BYTES = 4 * 1024 * 1024
PACK_FILE_BYTES = 1 << 30
_INLINE_KEY = "lance-encoding:blob-inline-size-threshold"
_PACKED_KEY = "lance-encoding:blob-dedicated-size-threshold"
_PACK_FILE_KEY = "lance-encoding:blob-pack-file-size-threshold"
_INLINE, _PACKED, _DEDICATED, _EXTERNAL = range(4)


@dataclass(frozen=True, slots=True)
class BlobOptions:
    """How blobs are written.

    Attributes
    ----------
    external : str
        ``refuse`` values that are URIs, keep a ``reference`` to them, or ``ingest`` what they name.
    pack_file_bytes : int or None
        A packed file is closed once it has so many bytes; the field's metadata or 1 GiB if None.
    """

    external: str = "refuse"
    pack_file_bytes: int | None = None


def blob_options(
    external_blob_mode: str, allow_external_blob_outside_bases: bool, pack_file_bytes: int | None
) -> BlobOptions:
    """Return the options that a caller gives by the names that pylance has for them.

    Raises
    ------
    InvalidInputError
        There is no such mode, references are allowed and not made, or a limit is not positive.
    """
    if external_blob_mode not in ("reference", "ingest"):
        raise InvalidInputError(
            f"external_blob_mode {external_blob_mode!r} is neither reference nor ingest"
        )
    if pack_file_bytes is not None and pack_file_bytes < 1:
        raise InvalidInputError(
            f"blob_pack_file_size_threshold must be at least 1, not {pack_file_bytes}"
        )
    if external_blob_mode == "ingest":
        if allow_external_blob_outside_bases:
            raise InvalidInputError(
                "allow_external_blob_outside_bases is for references; with external_blob_mode='ingest' leave it out"
            )
        return BlobOptions("ingest", pack_file_bytes)
    kept = "reference" if allow_external_blob_outside_bases else "refuse"
    return BlobOptions(kept, pack_file_bytes)


class BlobWriter:
    """Writes the blobs of one data file.

    Parameters
    ----------
    output : OutputFile
        The data file.
    version : tuple of int
    open_sidecar : callable
        Starts the file with a blob id.
    open_external : callable
        Opens the object that a URI names.
    options : BlobOptions
    """

    def __init__(
        self,
        output: OutputFile,
        version: tuple[int, int],
        open_sidecar: Callable[[int], OutputFile],
        open_external: Callable[[str], ByteSource],
        options: BlobOptions,
    ) -> None:
        self._output = output
        self._version = version
        self._open_sidecar = open_sidecar
        self._open_external = open_external
        self._options = options
        self._last_id = 0
        self._pack: OutputFile | None = None
        self._pack_id = 0

    def store(self, array: pa.Array, column: Field) -> pa.Array:
        """Write the blobs of an array; return it with what says where they are in their place.

        Parameters
        ----------
        array : pyarrow.Array
            Of the type of `blob_fields.input_field`.
        column : Field

        Raises
        ------
        InvalidInputError
            A value has both bytes and a URI, or neither; URIs are refused; a limit in the metadata is no number.
        StorageError
        """
        return replace_blobs(array, column, self._store)

    def finish(self) -> None:
        """Close the packed file, if there is one."""
        pack, self._pack = self._pack, None
        if pack is not None:
            pack.close()

    def _store(self, array: pa.Array, column: Field) -> pa.Array:
        if self._version < FIRST_V2:
            return self._store_v1(array)
        values = _Values.of(array, column.name)
        found = _Descriptions(len(array))
        limits = _Limits.of(column, self._options)
        self._store_bytes(values, limits, found)
        if values.uris is not None:
            self._store_uris(values, column.name, limits, found)
        return found.array(values.live, values.uris, self._options)

    def _store_v1(self, array: pa.Array) -> pa.Array:
        live = array.is_valid().to_numpy(zero_copy_only=False)
        offsets, data = _binary(array)
        sizes = np.where(live, np.diff(offsets), 0)
        start = align_output(self._output)
        if int(offsets[-1] - offsets[0]):
            self._output.write(data[int(offsets[0]) : int(offsets[-1])])
        positions = np.where(sizes == 0, 0, start + offsets[:-1] - offsets[0])
        if self._version == (2, 0):
            # These pages have no nulls: they are told by a position.
            positions[~live] = 1
            live = np.ones_like(live)
        columns = [pa.array(positions.astype(np.uint64)), pa.array(sizes.astype(np.uint64))]
        return _struct(columns, PLACE, live)

    def _store_bytes(self, values: _Values, limits: _Limits, found: _Descriptions) -> None:
        offsets, data = values.offsets, values.data
        sizes = np.where(values.live, np.diff(offsets), 0)
        found.sizes[:] = sizes
        stored = np.flatnonzero(sizes)
        if not len(stored):
            return
        kinds = np.where(sizes[stored] <= limits.inline, _INLINE, _PACKED)
        kinds[sizes[stored] > limits.packed] = _DEDICATED
        cuts = np.flatnonzero((np.diff(kinds) != 0) | (kinds[1:] == _DEDICATED)) + 1
        for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), len(stored)], strict=True):
            run = stored[first:last]
            kind = int(kinds[first])
            found.kinds[run] = kind
            if kind == _PACKED:
                self._store_packed(run, offsets, data, limits, found)
                continue
            begin, end = int(offsets[run[0]]), int(offsets[run[-1] + 1])
            if kind == _INLINE:
                found.positions[run] = align_output(self._output) + offsets[run] - begin
                self._output.write(data[begin:end])
            else:
                found.blob_ids[run] = self._dedicated(data[begin:end])

    def _store_packed(
        self,
        run: Lengths,
        offsets: Lengths,
        data: npt.NDArray[np.uint8],
        limits: _Limits,
        found: _Descriptions,
    ) -> None:
        ends = offsets[run + 1]
        at = 0
        while at < len(run):
            pack = self._pack
            if pack is not None and pack.tell() >= limits.pack_file:
                self.finish()
                continue
            if pack is None:
                self._last_id += 1
                self._pack_id = self._last_id
                pack = self._pack = self._open_sidecar(self._pack_id)
            begin = int(offsets[run[at]])
            room = begin + limits.pack_file - pack.tell()
            # The value that fills the file up is the last one in it.
            stop = min(int(np.searchsorted(ends, room, side="left")) + 1, len(run))
            stop = max(stop, at + 1)
            part = run[at:stop]
            found.positions[part] = pack.tell() + offsets[part] - begin
            found.blob_ids[part] = self._pack_id
            pack.write(data[begin : int(ends[stop - 1])])
            at = stop

    def _dedicated(self, data: npt.NDArray[np.uint8]) -> int:
        self._last_id += 1
        file = self._open_sidecar(self._last_id)
        try:
            file.write(data)
        except BaseException:
            file.abort()
            raise
        file.close()
        return self._last_id

    def _store_uris(
        self, values: _Values, name: str, limits: _Limits, found: _Descriptions
    ) -> None:
        assert values.uris is not None
        named = np.flatnonzero(values.uris.is_valid().to_numpy(zero_copy_only=False) & values.live)
        if not len(named):
            return
        if self._options.external == "refuse":
            raise InvalidInputError(
                f"column {name!r}: value {int(named[0])} of a batch is a URI. Say external_blob_mode='ingest' to store "
                "what it names, or allow_external_blob_outside_bases to keep a reference to it"
            )
        if self._options.external == "reference":
            found.kinds[named] = _EXTERNAL
            found.positions[named] = values.positions[named]
            found.sizes[named] = values.sizes[named]
            return
        for at in named.tolist():
            self._ingest(values, at, limits, found)

    def _ingest(self, values: _Values, at: int, limits: _Limits, found: _Descriptions) -> None:
        assert values.uris is not None
        source = self._open_external(values.uris[at].as_py())
        try:
            size = int(values.sizes[at]) or source.size - int(values.positions[at])
            (data,) = source.read([ByteRange(int(values.positions[at]), size)])
        finally:
            source.close()
        single = _Descriptions(1)
        one = _Values(np.ones(1, np.bool_), np.array([0, size], np.int64), data)
        self._store_bytes(one, limits, single)
        for name in ("kinds", "positions", "sizes", "blob_ids"):
            getattr(found, name)[at] = getattr(single, name)[0]


@dataclass(frozen=True, slots=True)
class _Limits:
    inline: int
    packed: int
    pack_file: int

    @classmethod
    def of(cls, column: Field, options: BlobOptions) -> _Limits:
        return cls(
            _limit(column, _INLINE_KEY, 0, INLINE_BYTES),
            _limit(column, _PACKED_KEY, 1, PACKED_BYTES),
            options.pack_file_bytes or _limit(column, _PACK_FILE_KEY, 1, PACK_FILE_BYTES),
        )


def _limit(column: Field, key: str, least: int, default: int) -> int:
    value = column.metadata.get(key)
    if value is None:
        return default
    if not value.isdigit() or len(value) > 18 or int(value) < least:
        raise InvalidInputError(
            f"column {column.name!r}: metadata {key!r} must be a number of bytes from {least} on, not {value!r}"
        )
    return int(value)


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of a column of the second kind; `positions` and `sizes` are of what the URIs name, 0 for all of it."""

    live: npt.NDArray[np.bool_]
    offsets: Lengths
    data: npt.NDArray[np.uint8]
    uris: pa.Array | None = None
    positions: Lengths = field(default_factory=lambda: np.zeros(0, np.int64))
    sizes: Lengths = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(cls, array: pa.Array, name: str) -> _Values:
        live = array.is_valid().to_numpy(zero_copy_only=False)
        if not pat.is_struct(array.type):
            return cls(live, *_binary(array))
        parts = dict(zip([child.name for child in array.type], array.flatten(), strict=True))
        data, uris = parts["data"], parts["uri"]
        has = [part.is_valid().to_numpy(zero_copy_only=False) for part in (data, uris)]
        wrong = np.flatnonzero(live & (has[0] == has[1]))
        if len(wrong):
            raise InvalidInputError(
                f"column {name!r}: value {int(wrong[0])} of a batch has {'both' if has[0][wrong[0]] else 'neither'} bytes "
                "and a URI; give one of them, or null"
            )
        offsets, content = _binary(data)
        if has[0].all():
            return cls(live, offsets, content)
        if not has[1].any():
            return cls(live, offsets, content)
        spans = [_numbers(parts.get(part), len(array)) for part in ("position", "size")]
        return cls(live, offsets, content, uris, *spans)


class _Descriptions:
    """What is known of the values of a column of the second kind, while they are written."""

    def __init__(self, count: int) -> None:
        self.kinds = np.zeros(count, np.uint8)
        self.positions = np.zeros(count, np.int64)
        self.sizes = np.zeros(count, np.int64)
        self.blob_ids = np.zeros(count, np.int64)

    def array(
        self, live: npt.NDArray[np.bool_], uris: pa.Array | None, options: BlobOptions
    ) -> pa.Array:
        count = len(live)
        names = pa.array([""], pa.string()).take(pa.array(np.zeros(count, np.int8)))
        if uris is not None and options.external == "reference":
            names = uris.fill_null("")
        columns = [
            pa.array(self.kinds),
            pa.array(self.positions.astype(np.uint64)),
            pa.array(self.sizes.astype(np.uint64)),
            pa.array(self.blob_ids.astype(np.uint32)),
            names,
        ]
        return _struct(columns, BLOB_DESCRIPTOR, live)


def _struct(columns: list[pa.Array], kind: pa.StructType, live: npt.NDArray[np.bool_]) -> pa.Array:
    mask = None if live.all() else bitmap(live)
    return pa.Array.from_buffers(kind, len(live), [mask], children=columns)


def _binary(array: pa.Array) -> tuple[Lengths, npt.NDArray[np.uint8]]:
    """Return the offsets and bytes of a large_binary array, without copying."""
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(len(array) + 1, np.int64), np.zeros(0, np.uint8)
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return ends, content


def _numbers(array: pa.Array | None, count: int) -> Lengths:
    if array is None:
        return np.zeros(count, np.int64)
    return np.asarray(array.fill_null(0).to_numpy(), np.int64)
