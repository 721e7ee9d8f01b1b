"""The files that versions of a table refer to, and the versions that pending restores refer to.

Files are compared by the names that manifests use, relative to the root that is cleaned up:

| in a manifest | refers to |
| --- | --- |
| `DataFile.path`, no base path | `data/<path>` of the manifest's own root |
| `DeletionFile`, no base path | `_deletions/<fragment>-<version>-<id>.<suffix>` of its own root |
| either, with a base path | any file of that name, in every root of the table |
| `ExternalFile.path` of row ids and versions | that path of its own root; any file of that name |
| `IndexMetadata.uuid` | `_indices/<uuid>/` in every root of the table |
| `transaction_file` | `_transactions/<name>` of its own root |

References of remaining versions are matched by file name alone, without resolving base paths: one
folder can have many spellings (links, relative paths, other schemes), and file names are random.
References of removed versions prove that no job is still writing a file only if the file is in the
version's own root.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import blake2b

from google.protobuf.message import DecodeError

from lance_spark.errors import CorruptTableError, InvalidInputError, MissingFileError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.storage.listing import FileInfo
from lance_spark.storage.local import check_size
from lance_spark.storage.parallel import read_all
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import check_relative, parse_uri
from lance_spark.table.cleanup.files import Candidate, FilePurpose, owner_of
from lance_spark.table.commit.transaction import FOLDER as TRANSACTIONS
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.indexes.sections import parse_section, uuid_of
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.paths import DATA, DELETIONS

_SUFFIXES = {table_pb2.DeletionFile.ARROW_ARRAY: "arrow", table_pb2.DeletionFile.BITMAP: "bin"}
#: Longer serialised fragments are compared by a digest.
_MAX_KEY_BYTES = 512
#: Larger transaction files are not restores: those have a few hundred bytes, and the user's
#: properties.
_MAX_RESTORE_BYTES = 1024 * 1024


class References:
    """The files and indexes that some versions refer to.

    - `paths`: Paths of data, deletion and transaction files in the root itself, and of external row
      id and row version sequences.
    - `names`: File names, without folders, of data and deletion files below base paths and of
      external sequences.
    - `indices`: Uuids of indexes.
    """

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.names: set[str] = set()
        self.indices: set[str] = set()

    def __contains__(self, candidate: Candidate) -> bool:
        return self.has_path(candidate) or candidate.name in self.names

    def has_path(self, candidate: Candidate) -> bool:
        """Return whether a path in the root itself, or an index, refers to a file."""
        if candidate.purpose is FilePurpose.INDEX or "/" not in candidate.owner:
            return candidate.owner in self.indices
        return candidate.owner in self.paths

    def add(self, other: References) -> None:
        """Add the references of other versions."""
        self.paths |= other.paths
        self.names |= other.names
        self.indices |= other.indices


class SeenFragments:
    """The fragments whose references were collected; most fragments are in many versions."""

    def __init__(self) -> None:
        self._keys: set[tuple[frozenset[int], bytes]] = set()

    def take_new(self, proto: table_pb2.Manifest, bases: set[int]) -> list[table_pb2.DataFragment]:
        """Return the fragments that were not seen before, and note them.

        - `bases`: Ids of base paths that are the root itself; a fragment is new if they differ.
        """
        new: dict[tuple[frozenset[int], bytes], table_pb2.DataFragment] = {}
        for fragment in proto.fragments:
            key = frozenset(bases), _key(fragment.SerializeToString())
            if key not in self._keys:
                new[key] = fragment
        self._keys.update(new)
        return list(new.values())


def references_of(
    manifest: Manifest, *, root: str, is_own: bool, seen: SeenFragments | None = None
) -> References:
    """Return the references of a version.

    - `root`: URI of the root that is cleaned up.
    - `is_own`: Whether the version belongs to that root; otherwise only its references outside of
      its own root count.
    - `seen`: Skip the references of fragments that were seen before.

    Raises CorruptTableError: a path leads out of its folder, or the index section cannot be parsed:
    the references are unknown.
    """
    proto = manifest.message
    bases = {base.id for base in proto.base_paths if _is_root(base, root)} if is_own else set()
    references = References()
    data: set[tuple[int | None, str]] = set()
    deletions: set[tuple[int | None, str]] = set()
    external: set[str] = set()
    for fragment in proto.fragments if seen is None else seen.take_new(proto, bases):
        for file in fragment.files:
            data.add((file.base_id if file.HasField("base_id") else None, file.path))
        for overlay in fragment.overlays:
            file = overlay.data_file
            data.add((file.base_id if file.HasField("base_id") else None, file.path))
        if fragment.HasField("deletion_file"):
            deletion = fragment.deletion_file
            suffix = _SUFFIXES.get(deletion.file_type)
            if suffix is None:
                raise CorruptTableError(
                    f"{manifest.name}: fragment {fragment.id}: unknown type of deletion file "
                    f"{deletion.file_type}"
                )
            name = f"{fragment.id}-{deletion.read_version}-{deletion.id}.{suffix}"
            deletions.add((deletion.base_id if deletion.HasField("base_id") else None, name))
        external.update(
            getattr(fragment, lineage.external).path
            for lineage in Lineage
            if fragment.HasField(lineage.external)
        )
    for folder, files in ((DATA, data), (DELETIONS, deletions)):
        for base, path in files:
            _check(path, manifest)
            if base is not None:
                references.names.add(path.rsplit("/", 1)[-1])
            if is_own and (base is None or base in bases):
                references.paths.add(f"{folder}/{path}")
    for path in external:
        _check(path, manifest)
        if is_own:
            references.paths.add(path)
        # In a clone that another client made, the path may mean a file of the source's root. Its
        # owner is kept as well, since files of one owner are removed together.
        names = (path, owner_of(path))
        references.names.update(name.rsplit("/", 1)[-1] for name in names if name)
    if is_own and manifest.transaction_file:
        references.paths.add(f"{TRANSACTIONS}/{manifest.transaction_file}")
    references.indices.update(_uuids(manifest))
    return references


def restored_versions(store: ObjectStore, files: Sequence[FileInfo]) -> frozenset[int]:
    """Return the versions that pending restores are about to commit again.

    A restore writes its transaction file first and then checks that the version to restore stays
    (`removal_guard`). Cleanup therefore looks for unreferenced transaction files after it marked
    the versions to remove. A file that a killed writer left counts until it is old enough to be
    removed itself.

    - `files`: Transaction files. Missing and unreadable files are skipped.

    Raises StorageError. Raises CorruptFileError: the store returned only part of a file.
    """
    small = [info for info in files if info.size <= _MAX_RESTORE_BYTES]
    restored = read_all(partial(_restored_version, store), small, local=store.is_local)
    return frozenset(version for version in restored if version is not None)


def _restored_version(store: ObjectStore, info: FileInfo) -> int | None:
    try:
        data = store.read_bytes(info.path)
    except MissingFileError:
        return None
    check_size(store.name(info.path), len(data), info.size or None)
    message = transaction_pb2.Transaction()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return None
    return message.restore.version if message.HasField("restore") else None


def _check(path: str, manifest: Manifest) -> None:
    try:
        check_relative(path)
    except InvalidInputError as error:
        raise CorruptTableError(f"{manifest.name}: {error}") from None


def _key(fragment: bytes) -> bytes:
    """Return a short key of a serialised fragment: a digest if it has a long row id sequence."""
    return fragment if len(fragment) <= _MAX_KEY_BYTES else blake2b(fragment).digest()


def _uuids(manifest: Manifest) -> Iterable[str]:
    for index in parse_section(manifest.index_section, manifest.name).indices:
        try:
            yield uuid_of(index)
        except CorruptTableError as error:
            raise CorruptTableError(f"{manifest.name}: {error}") from None


def _is_root(base: table_pb2.BasePath, root: str) -> bool:
    try:
        return base.is_dataset_root and parse_uri(base.path).objects.uri == root
    except InvalidInputError:
        return False
