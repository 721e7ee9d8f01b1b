"""Encodes and decodes manifest files.

| bytes | content |
| --- | --- |
| optional | dictionary values of files of version 0.1 |
| optional | index section: uint32 length, `IndexSection` |
| optional | transaction section: uint32 length, `Transaction`, the same bytes as in `_transactions/` |
| | uint32 length, `Manifest` |
| last 16 | uint64 position of the length of `Manifest`, uint16 0, uint16 2, "LANC" |

All integers are little-endian. `Manifest.index_section` and `Manifest.transaction_section` are the
positions of the lengths of their sections; older writers record the transaction in field 21 instead
of 23. Readers ignore the two numbers of the footer: the feature flags define what a reader must
support.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from google.protobuf.message import DecodeError

from lance_spark.errors import (
    CorruptTableError,
    MissingFileError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import flags, versions
from lance_spark.table.manifest import repairs as early_releases
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import ManifestLocation, NamingScheme

MAGIC = b"LANC"
FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_FOOTER_VERSION = (0, 2)


def read_manifest(store: ObjectStore, location: ManifestLocation) -> Manifest:
    """Read the manifest of a version.

    Raises
    ------
    CorruptTableError
        The file contradicts the format, or its version differs from its name.
    UnsupportedFeatureError
        The version needs features that this release cannot read.
    MissingFileError
        Cleanup removed the file.
    StorageError
    """
    try:
        data = store.read_bytes(location.path)
    except MissingFileError:
        if location.scheme is not NamingScheme.V1 or not location.version:
            raise
        # A migration can have renamed the file after it was listed.
        location = NamingScheme.V2.locate(location.version)
        data = store.read_bytes(location.path)
    manifest = decode(data, store.name(location.path))
    if location.version not in (0, manifest.version):
        raise CorruptTableError(
            f"{manifest.name}: the file is version {manifest.version}, its name says "
            f"{location.version}"
        )
    flags.check_readable(manifest.flags, store.display)
    manifest.check_file_format(store.display)
    return manifest


def check_identity(name: str, manifest: Manifest, identity: tuple[int, str | None] | None) -> None:
    """Check that a version is the one that a change was planned on, not one of a recreated table.

    Parameters
    ----------
    name : str
        Name of the table in errors.
    manifest : Manifest
        The version as it exists now.
    identity : (int, str or None), optional
        `Manifest.identity` of the version that was planned on; None skips the check.

    Raises
    ------
    VersionNotFoundError
        The version is a different one: the table was deleted and created again, or a delayed commit
        recreated a removed version.
    """
    if identity is not None and manifest.identity != identity:
        raise VersionNotFoundError(
            f"{name}: version {manifest.version} is not the one that the change was "
            "planned on: the table, or the version "
            "alone, was deleted and made anew; open it again"
        )


def read_version(store: ObjectStore, version: int) -> Manifest:
    """Read the manifest of a version, also of a detached one, without a listing.

    Raises
    ------
    VersionNotFoundError
        The version does not exist.
    TableNotFoundError, CorruptTableError, UnsupportedFeatureError, StorageError
    """
    places: Iterable[ManifestLocation] = versions.candidates(store, version)
    if versions.is_detached(version):
        places = [versions.find(store, version)]
    for location in places:
        manifest = find_manifest(store, location)
        if manifest is not None:
            return manifest
    raise versions.not_found(store, version)


def find_manifest(store: ObjectStore, location: ManifestLocation) -> Manifest | None:
    """Read the manifest of a version; None if it does not exist (any more)."""
    try:
        return read_manifest(store, location)
    except MissingFileError:
        return None


def decode(data: bytes, name: str) -> Manifest:
    """Parse a manifest file.

    Parameters
    ----------
    data : bytes
        The whole file.
    name : str
        Name of the file in errors.

    Raises
    ------
    CorruptTableError
        The bytes contradict the format.
    UnsupportedFeatureError
        The fragments are stored outside of the manifest.
    """
    if len(data) < FOOTER.size:
        raise CorruptTableError(
            f"{name}: a manifest has at least {FOOTER.size} bytes, this one {len(data)}; it is "
            "truncated"
        )
    position, _, _, magic = FOOTER.unpack_from(data, len(data) - FOOTER.size)
    if magic != MAGIC:
        raise CorruptTableError(
            f"{name}: no manifest: it ends with {magic!r} instead of {MAGIC!r}; it is truncated or "
            "another file"
        )
    proto = table_pb2.Manifest()
    try:
        proto.ParseFromString(_section(data, position, "manifest", name))
    except DecodeError as error:
        raise CorruptTableError(f"{name}: no readable manifest: {error}") from None
    if proto.HasField("fragment_tree"):
        raise UnsupportedFeatureError(
            f"{name}: its fragments are kept in a tree of files, which this release does not read. "
            "Use another client"
        )
    return Manifest(
        early_releases.with_unique_field_ids(proto),
        name,
        index_section=_section(data, proto.index_section, "index section", name)
        if proto.HasField("index_section")
        else None,
        transaction_section=_section(data, offset, "transaction section", name)
        if (offset := _transaction_position(proto)) is not None
        else None,
        dictionaries=_dictionaries(data, position, proto),
        size_bytes=len(data),
    )


def encode(
    proto: table_pb2.Manifest,
    index_section: bytes | None,
    transaction_section: bytes | None,
    dictionaries: bytes = b"",
) -> bytes:
    """Return the bytes of a manifest file.

    Parameters
    ----------
    proto : table_pb2.Manifest
        Message without the positions of the sections, which this function sets.
    index_section : bytes, optional
        `IndexSection`.
    transaction_section : bytes, optional
        `Transaction`.
    dictionaries : bytes
        Dictionary values of tables of version 0.1. Fields refer to their positions in the file, so
        they keep their positions.
    """
    for name in ("index_section", "transaction_section", "transaction_section_deprecated"):
        proto.ClearField(name)
    parts = [dictionaries]
    position = len(dictionaries)
    if index_section is not None:
        proto.index_section = position
        parts += [_LENGTH.pack(len(index_section)), index_section]
        position += _LENGTH.size + len(index_section)
    if transaction_section is not None:
        proto.transaction_section = position
        parts += [_LENGTH.pack(len(transaction_section)), transaction_section]
        position += _LENGTH.size + len(transaction_section)
    message = proto.SerializeToString()
    parts += [
        _LENGTH.pack(len(message)),
        message,
        FOOTER.pack(position, *_FOOTER_VERSION, MAGIC),
    ]
    return b"".join(parts)


def _transaction_position(proto: table_pb2.Manifest) -> int | None:
    if proto.HasField("transaction_section"):
        return proto.transaction_section
    if proto.HasField("transaction_section_deprecated"):
        return proto.transaction_section_deprecated
    return None


def _dictionaries(data: bytes, position: int, proto: table_pb2.Manifest) -> bytes:
    if not any(field.HasField("dictionary") for field in proto.fields):
        return b""
    starts = [position]
    if proto.HasField("index_section"):
        starts.append(proto.index_section)
    if (offset := _transaction_position(proto)) is not None:
        starts.append(offset)
    return data[: min(starts)]


def _section(data: bytes, position: int, what: str, name: str) -> bytes:
    end = len(data) - FOOTER.size
    if position > end - _LENGTH.size:
        raise CorruptTableError(
            f"{name}: its {what} would start at byte {position} of {len(data)}; the file is corrupt"
        )
    (length,) = _LENGTH.unpack_from(data, position)
    start = position + _LENGTH.size
    if length > end - start:
        raise CorruptTableError(
            f"{name}: its {what} would end at byte {start + length} of {len(data)}; the file is "
            "corrupt"
        )
    return data[start : start + length]
