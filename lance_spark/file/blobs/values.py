"""The input of a writer for a blob column of version 2.2: bytes, or URIs, perhaps with a range.

=========  ============  =====================================================================
child      type          content
=========  ============  =====================================================================
data       large_binary  the bytes, or null
uri        string        what names them instead, or null
position   uint64        with a URI, the first byte of a range of what it names; may be missing
size       uint64        bytes of the range, at least 1; there if the position is, null for all
=========  ============  =====================================================================

A URI below a base path of the table is stored as the path below it, and the id of the base path.
Other URIs are stored unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import is_variable, strings_of
from lance_spark.errors import InvalidInputError, UnsupportedTypeError
from lance_spark.file.schema.nested import Lengths
from lance_spark.storage.uri import parse_uri

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
