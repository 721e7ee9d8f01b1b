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
import re
import struct
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from lance_spark.encoding.meta import BLOB_KEY, BLOB_V2
from lance_spark.errors import (
    CorruptTableError,
    MissingFileError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.fragments import files as file_versions
from lance_spark.table.manifest import manifest as flags
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.manifest import BLOB_DATASET_ADVICE, Manifest, max_field_id
from lance_spark.table.manifest.versions import ManifestLocation, NamingScheme

if TYPE_CHECKING:
    from lance_spark.file.schema.field import Field


# --------------------------------------------------------------------------------------------------
# Tables that early releases of Lance wrote with errors: repairs of manifests, refused columns.
#
# 1. Releases before the field `writer_version`: row counts of fragments are wrong. The next commit
#    counts the rows again (`fragments.row_counts`).
# 2. The same releases, and "lance" before 0.8.15: fragment bitmaps of indexes are wrong. The next
#    commit leaves the indexes out. pylance reads the indexes instead, and repairs their bitmaps.
# 3. "lance" until 0.10.5: a column that was added after others were dropped got the id of a field
#    that data files have. The reader gives such columns new ids (`with_unique_field_ids`); the next
#    commit stores the new ids and drops data files without columns (`drop_unused_files`). This
#    happened only in tables with data files of version 0.1.
#
# pylance repairs the same errors with its next commit.
#
# 4. pylance around 0.19 to 0.39 kept blobs in a second table below ``_blobs/`` (0.18.2 and 1.0.4
# did    not). The manifests have a `blob_dataset_version`, which is the version of the second
# table.    Columns with the metadata ``lance-schema:storage-class = blob`` do not have values in
# the data    files: the values are in the second table, and stable row ids connect the rows of
# both. Each    change of the table must change both.
#
#    Newer releases of pylance read nulls from these columns. Their first commit drops the version
# of    the second table; then a column without values looks like a column of nulls. Nulls are wrong
# results, so this package refuses to read these columns (`check_columns`), and reads the others.
# `Manifest.check_writable` refuses every change. Specification: field 17 of `Manifest`, reserved
# now.
#
# 5. pylance adds a column of nulls with the metadata ``lance-encoding:blob`` as a field of the type
#    large_binary, also to tables whose files have version 2.2 or later, and so store such blobs as
#    structs. It fails to read values of such a field. A commit that has values declares it as a
#    struct (`declare_blobs`), as a commit of pylance does.

#: Field ids are smaller: they are int32.
_FIELD_IDS = 1 << 31
_LIBRARY = "lance"
#: The first release whose fragment bitmaps are right.
_TRUSTED_BITMAPS = (0, 8, 15)
_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})")
_EXTENSION_NAME = "ARROW:extension:name"
_STORAGE_CLASS = "lance-schema:storage-class"
_BLOB = b"blob"
_FIRST_BLOBS_AS_STRUCTS = (2, 2)


def has_wrong_bitmaps(manifest: table_pb2.Manifest) -> bool:
    """Return whether the fragment bitmaps of indexes may be wrong, as in an early release."""
    if not manifest.HasField("writer_version"):
        return True
    writer = manifest.writer_version
    if writer.library != _LIBRARY:
        return False
    parsed = _VERSION.match(writer.version)
    return parsed is None or tuple(map(int, parsed.groups())) < _TRUSTED_BITMAPS


def with_unique_field_ids(manifest: table_pb2.Manifest, name: str) -> table_pb2.Manifest:
    """Return a manifest in which each field id occurs in only one data file of a fragment.

    If several files of a fragment have the same field id, the last file has the values of the
    column. The column and this file get a new id. New ids follow the greatest id in use, in the
    order of the old ids. Files without a remaining column stay: cleanup must see that this version
    refers to them.

    - `manifest`: Not changed.
    - `name`: The name of the file in errors.

    Returns the same message if it needs no repair. Raises CorruptTableError: no field ids are left
    for the new ids.
    """
    if not _may_have_legacy_files(manifest):
        return manifest
    repeated: set[int] = set()
    for fragment in manifest.fragments:
        if len(fragment.files) > 1:
            repeated |= _repeated_ids(fragment)
    columns = {field.id for field in manifest.fields}
    repeated &= columns
    if not repeated:
        return manifest
    file_ids = (
        field_id
        for fragment in manifest.fragments
        for file in fragment.files
        for field_id in file.fields
    )
    first = max((*columns, *file_ids)) + 1
    if first + len(repeated) > _FIELD_IDS:
        raise CorruptTableError(
            f"{name}: data files of a fragment have the same field ids {sorted(repeated)[:5]}, and "
            f"its greatest field id is {first - 1}, so that none is left for new ids"
        )
    new_ids = {old: first + rank for rank, old in enumerate(sorted(repeated))}
    repaired = table_pb2.Manifest()
    repaired.CopyFrom(manifest)
    for field in repaired.fields:
        field.id = new_ids.get(field.id, field.id)
        field.parent_id = new_ids.get(field.parent_id, field.parent_id)
    for fragment in repaired.fragments:
        _renumber(fragment, new_ids)
    return repaired


def declare_blobs(manifest: table_pb2.Manifest) -> None:
    """Declare blobs in data files of version 2.2 or later as structs."""
    marked = {
        field.id
        for field in manifest.fields
        if field.logical_type in ("binary", "large_binary") and BLOB_KEY in field.metadata
    }
    if not marked or Manifest(manifest, "").data_storage_version < _FIRST_BLOBS_AS_STRUCTS:
        return
    files = (file for fragment in manifest.fragments for file in fragment.files)
    declared_ids = marked.intersection(number for file in files for number in file.fields)
    if not declared_ids:
        return
    next_id = max_field_id(manifest) + 1
    fields: list[file_pb2.Field] = []
    for field in manifest.fields:
        fields.append(field)
        if field.id not in declared_ids:
            continue
        del field.metadata[BLOB_KEY]
        field.metadata[_EXTENSION_NAME] = BLOB_V2
        field.extension_name = BLOB_V2.decode()
        field.logical_type = "struct"
        field.ClearField("encoding")
        for name, logical_type in (("data", "large_binary"), ("uri", "string")):
            fields.append(
                file_pb2.Field(
                    name=name,
                    id=next_id,
                    parent_id=field.id,
                    logical_type=logical_type,
                    nullable=True,
                    encoding=file_pb2.Encoding.VAR_BINARY,
                )
            )
            next_id += 1
    declared = table_pb2.Manifest(fields=fields)
    manifest.ClearField("fields")
    manifest.MergeFrom(declared)


def drop_unused_files(manifest: table_pb2.Manifest) -> None:
    """Remove data files without a column of the schema from fragments that have other files.

    pylance does the same as a part of its repair.

    - `manifest`: The manifest of a new version; changed in place. Not changed if the table does not
      have data files of version 0.1.
    """
    if not _may_have_legacy_files(manifest):
        return
    columns = {field.id for field in manifest.fields}
    for fragment in manifest.fragments:
        if len(fragment.files) > 1:
            used = [file for file in fragment.files if not columns.isdisjoint(file.fields)]
            if used and len(used) < len(fragment.files):
                copies = table_pb2.DataFragment(files=used)
                fragment.ClearField("files")
                fragment.MergeFrom(copies)


def _may_have_legacy_files(manifest: table_pb2.Manifest) -> bool:
    if not manifest.HasField("data_format"):
        return True
    return manifest.data_format.version in ("", "legacy", file_versions.text(file_versions.LEGACY))


def _repeated_ids(fragment: table_pb2.DataFragment) -> set[int]:
    """Return the field ids that occur in several files of a fragment."""
    seen: set[int] = set()
    repeated: set[int] = set()
    for file in fragment.files:
        ids = {field_id for field_id in file.fields if field_id >= 0}
        repeated |= seen & ids
        seen |= ids
    return repeated


def _renumber(fragment: table_pb2.DataFragment, new_ids: dict[int, int]) -> None:
    """Replace each id by its new id, in the last file that has it."""
    remaining = dict(new_ids)
    for file in reversed(fragment.files):
        file.fields[:] = [remaining.pop(field_id, field_id) for field_id in file.fields]


def check_columns(manifest: Manifest, fields: Iterable[Field]) -> None:
    """Refuse to read columns whose values are in the second table.

    - `fields`: Top-level columns that are read or used in a filter. Their children are checked too.

    Raises UnsupportedFeatureError: the message names the manifest and the column.
    """
    version = manifest.message.blob_dataset_version
    if not version:
        return
    names = [
        field.name
        for field in fields
        if any(node.metadata.get(_STORAGE_CLASS) == _BLOB for node in field.walk())
    ]
    if names:
        raise UnsupportedFeatureError(
            f"{manifest.name}: the values of column {names[0]!r} are in a second table below "
            f"_blobs/ (blob_dataset_version {version}), which this release does not read. Name the "
            f"columns to read, without {', '.join(map(repr, names))}. {BLOB_DATASET_ADVICE}"
        )


# --------------------------------------------------------------------------------------------------
# Reader and encoder of manifest files. A file contains one version of a table.

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
        with_unique_field_ids(proto, name),
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
