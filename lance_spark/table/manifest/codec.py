"""Reader and encoder of manifest files. A file contains one version of a table.

| bytes | content |
| --- | --- |
| optional | dictionary values of files of version 0.1 |
| optional | index section: uint32 length, `IndexSection` |
| optional | transaction section: uint32 length, `Transaction`, as in `_transactions/` |
| | uint32 length, `Manifest` |
| last 16 | uint64 position of the length of `Manifest`, uint16 0, uint16 2, "LANC" |

All integers are little-endian. `Manifest.index_section` and `Manifest.transaction_section` are the
positions of the lengths of their sections; older writers use field 21 instead of 23 for the
transaction. Readers ignore the two numbers of the footer: the feature flags say what a reader must
know.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import replace

from google.protobuf.message import DecodeError

from lance_spark.errors import (
    CorruptTableError,
    MissingFileError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import flags, repairs, versions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import ManifestLocation, NamingScheme

MAGIC = b"LANC"
FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_FOOTER_VERSION = (0, 2)


def read_manifest(store: ObjectStore, location: ManifestLocation) -> Manifest:
    """Read the manifest of a version. A process keeps manifests of locations that have a tag.

    Raises StorageError. Raises CorruptTableError: the file contradicts the format, or contains
    another version than its name says. Raises UnsupportedFeatureError: the version needs a feature
    that this release does not read. Raises MissingFileError: cleanup removed it.
    """
    try:
        data = _read(store, location)
    except MissingFileError:
        if location.scheme is not NamingScheme.V1 or not location.version:
            raise
        # A migration may have renamed it after the listing.
        location = NamingScheme.V2.locate(location.version)
        data = _read(store, location)
    try:
        manifest = decode(data, store.name(location.path))
    except CorruptTableError:
        store.forget_kept(location.path, location.tag)
        raise
    manifest.tag = location.tag
    if location.version not in (0, manifest.version):
        raise CorruptTableError(
            f"{manifest.name}: the file contains version {manifest.version}, "
            f"but its name says {location.version}"
        )
    flags.check_readable(manifest.flags, store.display)
    manifest.check_file_format(store.display)
    return manifest


def _read(store: ObjectStore, location: ManifestLocation) -> bytes:
    if location.tag is None:
        return store.read_bytes(location.path)
    return store.read_kept(location.path, location.tag)


def check_identity(name: str, manifest: Manifest, identity: tuple[int, str | None] | None) -> None:
    """Check that a stored version is the version that a change was planned on.

    The number does not suffice. A table can be deleted and created again. Cleanup can remove a
    version, and then a slow commit can create the same number again.

    - `name`: The name of the table in errors.
    - `manifest`: The version as it is stored now.
    - `identity`: `Manifest.identity` of the version that was read earlier. None skips the check.

    Raises VersionNotFoundError: the stored version is another version.
    """
    if identity is not None and manifest.identity != identity:
        raise VersionNotFoundError(
            f"{name}: version {manifest.version} is not the version that the change was planned "
            "on: the table or the version was deleted and created again; open the table again"
        )


def read_version(store: ObjectStore, version: int, manifest_tag: str | None = None) -> Manifest:
    """Read the manifest of a version, also of a detached one. Does not list the versions.

    - `manifest_tag`: `Manifest.tag` of the version that the caller has read before. If the process
      has kept that manifest, it is returned without a request, even if the version was removed
      since.

    Raises TableNotFoundError, CorruptTableError, UnsupportedFeatureError, StorageError. Raises
    VersionNotFoundError: the table does not have the version.
    """
    locations: Iterable[ManifestLocation] = versions.candidates(store, version)
    if versions.is_detached(version):
        locations = [versions.find(store, version)]
    for location in locations:
        if manifest_tag is not None and store.is_kept(location.path, manifest_tag):
            manifest = find_manifest(store, replace(location, tag=manifest_tag))
            if manifest is not None:
                # How long ago a listing has shown it is not known.
                manifest.read_at = -math.inf
                return manifest
        manifest = find_manifest(store, location)
        if manifest is not None:
            return manifest
    raise versions.not_found(store, version)


def find_manifest(store: ObjectStore, location: ManifestLocation) -> Manifest | None:
    """Read the manifest of a version; None if the file does not exist."""
    try:
        return read_manifest(store, location)
    except MissingFileError:
        return None


def decode(data: bytes, name: str) -> Manifest:
    """Parse a manifest file.

    - `data`: The whole file.
    - `name`: The name of the file in errors.

    Raises CorruptTableError: the bytes contradict the format. Raises UnsupportedFeatureError: the
    fragments are stored outside of the manifest.
    """
    if len(data) < FOOTER.size:
        raise CorruptTableError(
            f"{name}: a manifest has at least {FOOTER.size} bytes, this file has {len(data)}; "
            "it is truncated"
        )
    position, _, _, magic = FOOTER.unpack_from(data, len(data) - FOOTER.size)
    if magic != MAGIC:
        raise CorruptTableError(
            f"{name}: not a manifest: it ends with {magic!r} instead of {MAGIC!r}; "
            "it is truncated or another file"
        )
    proto = table_pb2.Manifest()
    try:
        proto.ParseFromString(_section(data, position, "manifest", name))
    except DecodeError as error:
        raise CorruptTableError(f"{name}: unreadable manifest: {error}") from None
    if proto.HasField("fragment_tree"):
        raise UnsupportedFeatureError(
            f"{name}: its fragments are stored in a tree of files, which this release does not "
            "read. Use another client"
        )
    index_section = transaction_section = None
    if proto.HasField("index_section"):
        index_section = _section(data, proto.index_section, "index section", name)
    transaction_position = _transaction_position(proto)
    if transaction_position is not None:
        transaction_section = _section(data, transaction_position, "transaction section", name)
    return Manifest(
        repairs.with_unique_field_ids(proto, name),
        name,
        index_section=index_section,
        transaction_section=transaction_section,
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

    - `proto`: The complete message. This function sets the positions of the sections in it.
    - `index_section`: The serialised `IndexSection`.
    - `transaction_section`: The serialised `Transaction`.
    - `dictionaries`: Dictionary values of tables of version 0.1. Fields refer to them by their
      position in the file, so they are written first, as in the previous manifest.
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
    if (transaction_position := _transaction_position(proto)) is not None:
        starts.append(transaction_position)
    return data[: min(starts)]


def _section(data: bytes, position: int, section: str, name: str) -> bytes:
    end = len(data) - FOOTER.size
    if position > end - _LENGTH.size:
        raise CorruptTableError(
            f"{name}: its {section} would start at byte {position} of {len(data)}; "
            "the file is corrupt"
        )
    (length,) = _LENGTH.unpack_from(data, position)
    start = position + _LENGTH.size
    if length > end - start:
        raise CorruptTableError(
            f"{name}: its {section} would end at byte {start + length} of {len(data)}; "
            "the file is corrupt"
        )
    return data[start : start + length]
