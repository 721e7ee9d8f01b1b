"""Writes the bytes of blobs as they arrive: into the data file, or into files beside it.

==============================  ===========  =======================================================
bytes of a value                kind         written to
==============================  ===========  =======================================================
any, before version 2.2         -            the data file
up to 64 KiB                    0 inline     the data file
up to 4 MiB                     1 packed     a file of many blobs, closed when it has 1 GiB
more                            2 dedicated  a file of its own
none, but a URI                 3 external   nowhere: the URI is kept
==============================  ===========  =======================================================

The limits, and the field metadata that changes them, are as in pylance. Values that are adjacent in
memory are written together, without padding. All columns of a data file share packed files; ids
count up from 1. A URI below a base path of the table is stored as the id of the base path, in place
of a blob id, and the path below it.

Pages hold a descriptor of 16 to 25 bytes for each value, so memory does not grow with the blobs.

Specification: format/file, "Blobs".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.encoding.blocks import bitmap, is_variable, strings_of
from lance_spark.encoding.v2_1.codec import take_pieces
from lance_spark.errors import InvalidInputError, UnsupportedTypeError
from lance_spark.file.blobs.fields import FIRST_V2, PLACE
from lance_spark.file.footer import align_output
from lance_spark.file.schema.field import BLOB_DESCRIPTOR, Field
from lance_spark.file.schema.nested import Lengths, replace_blobs
from lance_spark.storage.output import OutputFile
from lance_spark.storage.source import ByteRange, ByteSource
from lance_spark.storage.uri import parse_uri

# --------------------------------------------------------------------------------------------------
# The input of a writer for a blob column of version 2.2: bytes, or URIs, perhaps with a range.
#
# =========  ============  =====================================================================
# child      type          content
# =========  ============  =====================================================================
# data       large_binary  the bytes, or null
# uri        string        what names them instead, or null
# position   uint64        with a URI, the first byte of a range of what it names; may be missing
# size       uint64        bytes of the range, at least 1; there if the position is, null for all
# =========  ============  =====================================================================
#
# A URI below a base path of the table is stored as the path below it, and the id of the base path.
# Other URIs are stored unchanged.

_LARGEST = 1 << 62
#: URIs with only one spelling: no escapes, no parts of dots, no empty parts.
_CLEAN = r"^(?:file://|[a-z][a-z0-9+.\-]*:/)?(?:/[^/%.?#\\][^/%?#\\]*)+$"
_ABSOLUTE = r"^[A-Za-z][A-Za-z0-9+.\-]+:/"


@dataclass(frozen=True, slots=True)
class BlobValues:
    """The values of one array.

    - `live`: False for nulls.
    - `offsets`, `data`: The bytes; bytes of values with a URI are ignored.
    - `sizes`: Bytes of each value; 0 for nulls and URIs.
    - `starts`, `lengths`: Ranges of the objects that the URIs name; a length of 0 means the whole
      object.
    """

    live: npt.NDArray[np.bool_]
    offsets: Lengths
    data: npt.NDArray[np.uint8]
    sizes: Lengths
    uris: pa.Array | None = None
    starts: Lengths = field(default_factory=lambda: np.zeros(0, np.int64))
    lengths: Lengths = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(cls, array: pa.Array, name: str) -> BlobValues:
        """Parse an array of large_binary, or of the struct.

        Raises InvalidInputError: a value has both bytes and a URI, or neither, or an impossible
        range. Raises UnsupportedTypeError: the values are not binary.
        """
        live = _valid(array)
        if not pat.is_struct(array.type):
            if not is_variable(array.type):
                # Another client made the column.
                raise UnsupportedTypeError(
                    f"field {name!r}: blobs must be binary, not {array.type}"
                )
            offsets, content = binary_parts(array)
            return cls(live, offsets, content, np.where(live, np.diff(offsets), 0))
        parts = dict(zip([child.name for child in array.type], array.flatten(), strict=True))
        data = parts["data"]
        uris = parts.get("uri", pa.nulls(0, pa.string()))
        has_data = _valid(data)
        has_uri = _valid(uris) if len(uris) else np.zeros(len(array), np.bool_)
        _refuse(live & has_data & has_uri, name, "has both bytes and a URI; give one of them")
        _refuse(live & ~has_data & ~has_uri, name, "has neither bytes nor a URI; give null instead")
        offsets, content = binary_parts(data)
        sizes = np.where(live & has_data, np.diff(offsets), 0)
        ranges = _ranges(parts, live, has_uri, name)
        if not has_uri.any():
            return cls(live, offsets, content, sizes)
        return cls(live, offsets, content, sizes, uris, *ranges)

    def named(self) -> Lengths:
        """Return which values are URIs."""
        if self.uris is None:
            return np.zeros(0, np.int64)
        return np.flatnonzero(_valid(self.uris) & self.live)


def below_bases(uris: pa.Array, bases: Mapping[int, str]) -> tuple[Lengths, pa.Array]:
    """Find the base paths that URIs are below.

    - `uris`: Without nulls.
    - `bases`: Absolute URIs, as `parse_uri` spells them.

    Returns for each URI the id of the base path and the path below it; 0 and the URI if it is below
    no base path.
    """
    base_ids = np.zeros(len(uris), np.int64)
    if not bases or not len(uris):
        return base_ids, uris
    plain = _plain(uris)
    relative_uris = uris
    # A base path below another base path comes first.
    for number in sorted(bases, key=lambda number: len(bases[number]), reverse=True):
        prefix = bases[number].rstrip("/") + "/"
        hit = np.asarray(pc.starts_with(plain, prefix)) & (base_ids == 0)
        if hit.any():
            relative = pc.utf8_slice_codeunits(plain, len(prefix))
            hit &= np.asarray(pc.not_equal(relative, ""))
            base_ids[hit] = number
            relative_uris = pc.if_else(pa.array(hit), relative, relative_uris)
    return base_ids, relative_uris


def not_absolute(uris: pa.Array) -> Lengths:
    """Return which URIs depend on the working directory."""
    return np.flatnonzero(~np.asarray(pc.match_substring_regex(uris, _ABSOLUTE)))


def binary_parts(array: pa.Array) -> tuple[Lengths, npt.NDArray[np.uint8]]:
    """Return the offsets and bytes of a large_binary array, without copying."""
    block = strings_of(array)
    return block.offsets.astype(np.int64, copy=False), block.data


def _ranges(
    parts: Mapping[str, pa.Array],
    live: npt.NDArray[np.bool_],
    has_uri: npt.NDArray[np.bool_],
    name: str,
) -> tuple[Lengths, Lengths]:
    range_parts = [parts.get(part) for part in ("position", "size")]
    none = np.zeros(len(live), np.bool_)
    has = [none if part is None else _valid(part) & live for part in range_parts]
    _refuse(has[0] != has[1], name, "has a position or a size; give both, or neither")
    _refuse(has[0] & ~has_uri, name, "has position and size, but no URI that they are of")
    numbers = [
        np.zeros(len(live), np.uint64) if part is None else part.fill_null(0).to_numpy()
        for part in range_parts
    ]
    _refuse(has[1] & (numbers[1] == 0), name, "is a range of no bytes; give b'' instead")
    _refuse(
        has[0] & ((numbers[0] > _LARGEST) | (numbers[1] > _LARGEST)),
        name,
        "is a range that no file can have",
    )
    starts, lengths = (
        np.where(is_set, part, 0).astype(np.int64)
        for is_set, part in zip(has, numbers, strict=True)
    )
    return starts, lengths


def _plain(uris: pa.Array) -> pa.Array:
    """Return URIs as `parse_uri` spells them, without escapes."""
    clean = pc.match_substring_regex(uris, _CLEAN)
    plain = pc.replace_substring_regex(uris, "^file:///", "/")
    odd = uris.filter(pc.invert(clean)).dictionary_encode()
    if not len(odd):
        return plain
    spelt = [_spelt(uri) for uri in odd.dictionary.to_pylist()]
    return pc.replace_with_mask(
        plain, pc.invert(clean), pa.array(spelt, uris.type).take(odd.indices)
    )


def _spelt(uri: str) -> str:
    try:
        parsed = parse_uri(uri)
    except InvalidInputError:
        return ""
    if parsed.is_local:
        return parsed.uri
    path = unquote(parsed.uri)
    # A path with ".." is not below any base path.
    return "" if any(step in (".", "..") for step in path.split("/")) else path


def _refuse(wrong: npt.NDArray[np.bool_], name: str, problem: str) -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        raise InvalidInputError(f"column {name!r}: value {int(rows[0])} of a batch {problem}")


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


# --------------------------------------------------------------------------------------------------
# Writes the bytes of blobs as they arrive: into the data file, or into files beside it.

INLINE_BYTES = 64 * 1024
PACKED_BYTES = 4 * 1024 * 1024
PACK_FILE_BYTES = 1 << 30
_INLINE_KEY = "lance-encoding:blob-inline-size-threshold"
_PACKED_KEY = "lance-encoding:blob-dedicated-size-threshold"
_PACK_FILE_KEY = "lance-encoding:blob-pack-file-size-threshold"
#: Smaller values are joined by a copy before they are written.
_WORTH_A_WRITE = 64 * 1024
_INLINE, _PACKED, _DEDICATED, _EXTERNAL = range(4)


@dataclass(frozen=True, slots=True)
class BlobOptions:
    """How blobs are written.

    - `external`: Values that are URIs: ``refuse`` URIs outside of the bases, keep a ``reference``
      to any, or ``ingest`` the objects that they name.
    - `pack_file_bytes`: Maximum bytes of a packed file with several values; if None, from the
      metadata of the field, or 1 GiB.
    - `bases`: Absolute URIs of base paths, by their ids. References below them are stored relative
      to them.
    """

    external: str = "refuse"
    pack_file_bytes: int | None = None
    bases: Mapping[int, str] = field(default_factory=dict)


def blob_options(
    external_blob_mode: str, allow_external_blob_outside_bases: bool, pack_file_bytes: int | None
) -> BlobOptions:
    """Return the options, from arguments with the names of pylance.

    Raises InvalidInputError: the mode is unknown, references are allowed but not made, or a limit
    is not positive.
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
                "allow_external_blob_outside_bases is for references; with "
                "external_blob_mode='ingest' leave it out"
            )
        return BlobOptions("ingest", pack_file_bytes)
    outside_bases = "reference" if allow_external_blob_outside_bases else "refuse"
    return BlobOptions(outside_bases, pack_file_bytes)


class BlobWriter:
    """Writes the blobs of one data file.

    - `output`: The data file.
    - `open_sidecar`: Starts the file with a blob id.
    - `open_external`: Opens the object that a URI names.
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
        """Write the blobs of an array; return the array with descriptors in their place.

        - `array`: Array of the type of `fields.input_field`.

        Raises StorageError. Raises InvalidInputError: a value has both bytes and a URI, or neither;
        URIs are refused; a limit in the metadata is not a number.
        """
        return replace_blobs(array, column, self._store)

    def finish(self) -> None:
        """Close the packed file, if there is one."""
        pack = self._pack
        if pack is not None:
            # A file that cannot be closed can still be aborted.
            pack.close()
            self._pack = None

    def abort(self) -> None:
        """Drop the packed file, if one is open. Files that are closed stay."""
        pack, self._pack = self._pack, None
        if pack is not None:
            pack.abort()

    def _store(self, array: pa.Array, column: Field) -> pa.Array:
        if self._version < FIRST_V2:
            return self._store_v1(array)
        values = BlobValues.of(array, column.name)
        descriptions = _Descriptions(len(array))
        limits = _Limits.of(column, self._options)
        self._store_bytes(values, limits, descriptions)
        named = values.named()
        if not len(named):
            return descriptions.array(values.live)
        if self._options.external == "ingest":
            for position in named.tolist():
                self._ingest(values, position, limits, descriptions)
        else:
            self._refer(values, named, column.name, descriptions)
        return descriptions.array(values.live)

    def _store_v1(self, array: pa.Array) -> pa.Array:
        live = array.is_valid().to_numpy(zero_copy_only=False)
        offsets, data = binary_parts(array)
        sizes = np.where(live, np.diff(offsets), 0)
        start = align_output(self._output)
        if int(offsets[-1] - offsets[0]):
            self._output.write(data[int(offsets[0]) : int(offsets[-1])])
        positions = np.where(sizes == 0, 0, start + offsets[:-1] - offsets[0])
        if self._version == (2, 0):
            # These pages store no validity: a special position marks a null.
            positions[~live] = 1
            live = np.ones_like(live)
        columns = [pa.array(positions.astype(np.uint64)), pa.array(sizes.astype(np.uint64))]
        return _struct(columns, PLACE, live)

    def _store_bytes(
        self, values: BlobValues, limits: _Limits, descriptions: _Descriptions
    ) -> None:
        offsets, data, sizes = values.offsets, values.data, values.sizes
        descriptions.sizes[:] = sizes
        stored = np.flatnonzero(sizes)
        if not len(stored):
            return
        storage_modes = np.where(sizes[stored] <= limits.inline, _INLINE, _PACKED)
        storage_modes[sizes[stored] > limits.packed] = _DEDICATED
        descriptions.kinds[stored] = storage_modes
        alone = np.flatnonzero(storage_modes == _DEDICATED)
        for segment in np.split(np.arange(len(stored)), alone):
            # Each run except the first begins with a value that gets a file of its own; so ids are
            # in the order of the rows.
            for storage_mode in (_DEDICATED, _INLINE, _PACKED):
                run = stored[segment[storage_modes[segment] == storage_mode]]
                for part, edges, content in _contiguous_parts(run, offsets, data):
                    if storage_mode == _PACKED:
                        self._store_packed(part, edges, content, limits, descriptions)
                        continue
                    run_bytes = content[int(edges[0]) : int(edges[-1])]
                    if storage_mode == _DEDICATED:
                        descriptions.blob_ids[part] = self._dedicated(run_bytes)
                        continue
                    start = align_output(self._output)
                    descriptions.positions[part] = start + edges[:-1] - edges[0]
                    self._output.write(run_bytes)

    def _store_packed(
        self,
        run: Lengths,
        edges: Lengths,
        data: npt.NDArray[np.uint8],
        limits: _Limits,
        descriptions: _Descriptions,
    ) -> None:
        position = 0
        while position < len(run):
            pack = self._pack
            if pack is None:
                self._last_id += 1
                self._pack_id = self._last_id
                pack = self._pack = self._open_sidecar(self._pack_id)
            begin = int(edges[position])
            limit = begin + limits.pack_file - pack.tell()
            stop = int(np.searchsorted(edges, limit, side="right")) - 1
            if stop <= position:
                if pack.tell():
                    self.finish()
                    continue
                # A value above the limit of a packed file has a packed file for itself.
                stop = position + 1
            descriptions.positions[run[position:stop]] = pack.tell() + edges[position:stop] - begin
            descriptions.blob_ids[run[position:stop]] = self._pack_id
            pack.write(data[begin : int(edges[stop])])
            position = stop

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

    def _refer(
        self, values: BlobValues, named: Lengths, name: str, descriptions: _Descriptions
    ) -> None:
        assert values.uris is not None
        bases, uris = below_bases(values.uris.take(pa.array(named)), self._options.bases)
        outside = np.flatnonzero(bases == 0)
        if len(outside):
            if self._options.external == "refuse":
                raise InvalidInputError(
                    f"column {name!r}: value {int(named[outside[0]])} of a batch is a URI"
                    f"{' that is below no base path of the table' if self._options.bases else ''}. "
                    "Say external_blob_mode='ingest' to store what it names, or "
                    "allow_external_blob_outside_bases to keep a reference to it"
                )
            relative = not_absolute(uris.take(pa.array(outside)))
            if len(relative):
                uri = uris[int(outside[relative[0]])].as_py()
                raise InvalidInputError(
                    f"column {name!r}: {uri!r} cannot be kept as a reference; give an absolute "
                    "URI, such as file:///data/x.bin"
                )
        descriptions.kinds[named] = _EXTERNAL
        descriptions.positions[named] = values.starts[named]
        descriptions.sizes[named] = values.lengths[named]
        descriptions.blob_ids[named] = bases
        descriptions.refer(named, uris)

    def _ingest(
        self, values: BlobValues, row: int, limits: _Limits, descriptions: _Descriptions
    ) -> None:
        assert values.uris is not None
        source = self._open_external(values.uris[row].as_py())
        try:
            start = int(values.starts[row])
            size = int(values.lengths[row]) or source.size
            (data,) = source.read([ByteRange(start, size)])
        finally:
            source.close()
        single = _Descriptions(1)
        ends = np.array([0, size], np.int64)
        value = BlobValues(np.ones(1, np.bool_), ends, data, ends[1:])
        self._store_bytes(value, limits, single)
        for name in ("kinds", "positions", "sizes", "blob_ids"):
            getattr(descriptions, name)[row] = getattr(single, name)[0]


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
            f"column {column.name!r}: metadata {key!r} must be a number of bytes from {least} on, "
            f"not {value!r}"
        )
    return int(value)


def _contiguous_parts(
    run: Lengths, offsets: Lengths, data: npt.NDArray[np.uint8]
) -> Iterator[tuple[Lengths, Lengths, npt.NDArray[np.uint8]]]:
    """Yield values in contiguous parts: slices of `data` if these are large, else one copy.

    A part has the rows of its values, the edges between values, and the bytes.
    """
    if not len(run):
        return
    starts, ends = offsets[run], offsets[run + 1]
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    if len(breaks) and int((ends - starts).sum()) < _WORTH_A_WRITE * (len(breaks) + 1):
        yield run, *take_pieces(data, offsets, run)
        return
    for first, last in zip([0, *breaks.tolist()], [*breaks.tolist(), len(run)], strict=True):
        yield run[first:last], np.append(starts[first:last], ends[last - 1]), data


class _Descriptions:
    """The descriptors of the values of a blob column of version 2.2, while they are written."""

    def __init__(self, count: int) -> None:
        self.kinds = np.zeros(count, np.uint8)
        self.positions = np.zeros(count, np.int64)
        self.sizes = np.zeros(count, np.int64)
        self.blob_ids = np.zeros(count, np.int64)
        self._uris: pa.Array | None = None

    def refer(self, named: Lengths, uris: pa.Array) -> None:
        """Set the URIs of some values."""
        positions = np.full(len(self.kinds), len(uris), np.int64)
        positions[named] = np.arange(len(uris))
        self._uris = pa.concat_arrays([uris, pa.array([""], uris.type)]).take(pa.array(positions))

    def array(self, live: npt.NDArray[np.bool_]) -> pa.Array:
        """Return the array of descriptors for the pages."""
        count = len(live)
        uris = self._uris
        if uris is None:
            uris = pa.array([""], pa.string()).take(pa.array(np.zeros(count, np.int8)))
        columns = [
            pa.array(self.kinds),
            pa.array(self.positions.astype(np.uint64)),
            pa.array(self.sizes.astype(np.uint64)),
            pa.array(self.blob_ids.astype(np.uint32)),
            uris,
        ]
        return _struct(columns, BLOB_DESCRIPTOR, live)


def _struct(columns: list[pa.Array], dtype: pa.StructType, live: npt.NDArray[np.bool_]) -> pa.Array:
    mask = None if live.all() else bitmap(live)
    return pa.Array.from_buffers(dtype, len(live), [mask], children=columns)
