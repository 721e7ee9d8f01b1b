"""Plan of a cleanup: the versions to remove, and the files to remove with them.

A version is removed if the policy allows it, except: the newest version, versions newer than the
caller's, versions with a tag, and versions that a branch was made from and still needs files of. A
file is removed if no remaining version refers to it, and

- a removed version refers to it (then no running job is still writing it), or
- it was written before the grace period or before the caller's `unverified_before_ns`, or the
  caller guarantees that no job is running (`delete_unverified`).

Remaining versions also include detached versions and all versions of the other branches (of the
main branch, if a branch is cleaned up). Branches are found by their files in `_refs/branches/` and
by their folders in `tree/`, so that a branch that is being created counts. Clones elsewhere are
unknown: tags must protect their source versions.

Other clients may commit during a cleanup. The order of the steps makes that safe:

1. List the files. A file that is written later is not in the list and cannot be removed.
2. Read the manifests. All references of earlier commits are known then. A later commit refers to
   files that it wrote itself (not in the list, or younger than the grace period and in no removed
   version), and to files of its base version, which is the newest version and stays.
3. Read tags, branches and newer versions. Only these can refer to old files again: a tag or branch
   on an old version, a restore.
4. Delete the transaction files of the versions to remove. No reader needs these, and their absence
   marks the versions as being removed for clients that create a tag or branch (`removal_guard`).
   Then repeat step 3 (`look_again`), and look for restores under way
   (`references.restored_versions`). If a client and a cleanup meet, at least one of them sees the
   other.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from hashlib import blake2b

from google.protobuf.message import DecodeError

from lance_spark import progress
from lance_spark.errors import (
    CorruptTableError,
    InvalidInputError,
    MissingFileError,
    TableNotFoundError,
    VersionNotFoundError,
)
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.storage.listing import FileInfo
from lance_spark.storage.local import check_size
from lance_spark.storage.parallel import call_all, read_all, read_each
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import check_relative, parse_uri
from lance_spark.table.commit.transaction import FOLDER as TRANSACTIONS
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.indexes.sections import parse_section, uuid_of
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import find_manifest, read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import ManifestLocation, NamingScheme, list_manifests
from lance_spark.table.paths import DATA, DELETIONS
from lance_spark.table.refs.branch_store import (
    BRANCHES,
    Branch,
    branch_folders,
    origin_version,
    read_branches,
)
from lance_spark.table.refs.names import REFS, RESERVED, branch_store, main_store
from lance_spark.table.refs.tags import Tag, read_tags

# --------------------------------------------------------------------------------------------------
# Listing of the files below a table's root that cleanup may remove.
#
# | path | purpose | owner: the name by which manifests refer to it |
# | --- | --- | --- |
# | `data/**/*.lance` | data | the path |
# | `data/<stem>/*.blob` | data | the data file `data/<stem>.lance` |
# | `_deletions/*.arrow`, `*.bin` | deletion | the path |
# | `_indices/<uuid>/**` | index | the uuid of the index |
# | `_transactions/*.txn` | transaction | the path |
# | `.<name>.<32 hex digits>.tmp`, `.tmp*`, `<name>#<n>` | temporary | the owner of its folder |
# | `_versions/<manifest>-<uuid>` | temporary | none |
#
# Temporary files are left by writers that were killed: the first form of their names is this
# package's, the others are pylance's. The last row is the staging file of a commit by an external
# manifest store.
#
# Files of any other name are never candidates, even if a manifest names them; neither are files of
# other tables inside these folders. Manifests are listed by their versions.

INDICES = "_indices"
#: The folders that may hold candidates.
_FOLDERS = (DATA, DELETIONS, INDICES, TRANSACTIONS, versions.FOLDER, REFS)
TEMPORARY = re.compile(
    r"\..+\.[0-9a-f]{32}\.tmp|\.tmp.*|.+\.(?:lance|manifest|txn|arrow|bin|blob|json)#\d+"
)
UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_STAGING = re.compile(rf"([0-9]{{1,20}}\.manifest)-{UUID}")
#: A manifest of another table inside a folder of this one. Any file in the folder of an index
#: belongs to the index.
_INNER_MANIFEST = re.compile(
    rf"(?!_indices/{UUID}/)(.+)/{versions.FOLDER}/[^/]+\.manifest", re.DOTALL
)
_DEPTH_OF_BLOBS = 3
_DEPTH_OF_RENAMED = 3
_DEPTH_OF_INDEX_FILES = 3


class FilePurpose(Enum):
    """The purpose of a file."""

    MANIFEST = "manifest"
    DATA = "data"
    TRANSACTION = "transaction"
    INDEX = "index"
    DELETION = "deletion"
    TEMPORARY = "temporary"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that cleanup removes unless a remaining version refers to it.

    - `owner`: The name by which manifests refer to it: path of the data, deletion or transaction
      file, or uuid of the index. For a temporary file the owner of its folder; empty if the folder
      has no owner.
    - `version`: Version of a staging file; 0 for any other file.
    """

    info: FileInfo
    purpose: FilePurpose
    owner: str
    version: int = 0

    @property
    def is_temporary(self) -> bool:
        """Whether the file is the unfinished output of a writer."""
        return self.purpose is FilePurpose.TEMPORARY

    @property
    def name(self) -> str:
        """The owner's name without folders."""
        return self.owner.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a table that cleanup may remove.

    - `candidates`: All files except manifests.
    - `manifests`: Manifests by version. A version has two files after an interrupted migration of
      manifest names.
    """

    candidates: list[Candidate]
    manifests: dict[int, list[FileInfo]]


def list_files(store: ObjectStore) -> Listing:
    """List the files below the root of a table that cleanup may remove. Raises StorageError."""
    listing = Listing([], {})
    trees = read_all(store.list_tree, _FOLDERS, local=store.is_local)
    inner = _inner_tables(info.path for infos in trees for info in infos)
    for folder, infos in zip(_FOLDERS, trees, strict=True):
        for info in infos:
            if inner and info.path.startswith(inner):
                continue
            candidate = classify(info)
            if candidate is not None:
                listing.candidates.append(candidate)
            elif folder == versions.FOLDER:
                location = versions.parse_name(info.path.removeprefix(f"{folder}/"))
                if location is not None:
                    listing.manifests.setdefault(location.version, []).append(info)
    return listing


def _inner_tables(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the folders of other tables inside this table's folders."""
    # For example the folders of a branch `x/data` inside the folders of the branch `x`.
    roots = {match[1] for path in paths if (match := _INNER_MANIFEST.fullmatch(path)) is not None}
    return tuple(f"{root}/{folder}/" for root in roots for folder in RESERVED)


def classify(info: FileInfo) -> Candidate | None:
    """Return the candidate for a file; None if cleanup never removes files of that name."""
    steps = info.path.split("/")
    folder, name = steps[0], steps[-1]
    if TEMPORARY.fullmatch(name):
        return Candidate(info, FilePurpose.TEMPORARY, _folder_owner(steps))
    if (
        folder == versions.FOLDER
        and len(steps) == _DEPTH_OF_RENAMED
        and TEMPORARY.fullmatch(steps[1])
    ):
        # Left by an interrupted commit on HDFS.
        return Candidate(info, FilePurpose.TEMPORARY, "")
    if folder == versions.FOLDER and (staging := _STAGING.fullmatch(name)):
        location = versions.parse_name(staging[1])
        if location is not None:
            return Candidate(info, FilePurpose.TEMPORARY, "", location.version)
    if folder == DATA and name.endswith(".lance"):
        return Candidate(info, FilePurpose.DATA, info.path)
    if folder == DATA and name.endswith(".blob") and len(steps) == _DEPTH_OF_BLOBS:
        return Candidate(info, FilePurpose.DATA, _folder_owner(steps))
    if folder == INDICES and len(steps) >= _DEPTH_OF_INDEX_FILES:
        return Candidate(info, FilePurpose.INDEX, _folder_owner(steps))
    if folder == DELETIONS and name.endswith((".arrow", ".bin")):
        return Candidate(info, FilePurpose.DELETION, info.path)
    if folder == TRANSACTIONS and name.endswith(".txn"):
        return Candidate(info, FilePurpose.TRANSACTION, info.path)
    return None


def owner_of(path: str) -> str:
    """Return the owner of a file (see `Candidate`); empty if no cleanup removes such files."""
    candidate = classify(FileInfo(path, 0, None))
    return "" if candidate is None else candidate.owner


def _folder_owner(steps: list[str]) -> str:
    if steps[0] == INDICES and len(steps) >= _DEPTH_OF_INDEX_FILES:
        return steps[1]
    if steps[0] == DATA and len(steps) == _DEPTH_OF_BLOBS:
        return f"{DATA}/{steps[1]}.lance"
    return ""


# --------------------------------------------------------------------------------------------------
# The files that versions of a table refer to, and the versions that pending restores refer to.
#
# Files are compared by the names that manifests use, relative to the root that is cleaned up:
#
# | in a manifest | refers to |
# | --- | --- |
# | `DataFile.path`, no base path | `data/<path>` of the manifest's own root |
# | `DeletionFile`, no base path | `_deletions/<fragment>-<version>-<id>.<suffix>` of its own root |
# | either, with a base path | any file of that name, in every root of the table |
# | `ExternalFile.path` of row ids and versions | that path of its own root; any file of that name |
# | `IndexMetadata.uuid` | `_indices/<uuid>/` in every root of the table |
# | `transaction_file` | `_transactions/<name>` of its own root |
#
# References of remaining versions are matched by file name alone, without resolving base paths: one
# folder can have many spellings (links, relative paths, other schemes), and file names are random.
# References of removed versions prove that no job is still writing a file only if the file is in
# the version's own root.

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


# --------------------------------------------------------------------------------------------------
# Plan of a cleanup: the versions to remove, and the files to remove with them.

#: Files that no version refers to stay for this time: a running job may be about to commit them.
GRACE_SECONDS = 7 * 24 * 3600
#: Manifests of detached versions, and their staging files: an unfinished commit by an external
#: manifest store leaves only those.
_DETACHED = re.compile(rf"d[0-9]+\.manifest(?:-{UUID})?")


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """The versions that a cleanup may remove: those that meet all conditions that are given.

    - `before_ns`: Only versions committed before this time, in nanoseconds since 1970 in UTC.
    - `retain_versions`: Not this many newest versions.
    - `before_version`: Only versions with a lower number.
    - `versions`: Only these versions.
    - `delete_unverified`: Whether to remove files that no version refers to regardless of their
      age. The caller guarantees that no job is writing to the table.
    - `error_if_tagged_old_versions`: Whether a tag on a removable version is an error; otherwise
      the version stays.
    - `unverified_before_ns`: Files that no version refers to are removed if they were written
      before this time, in nanoseconds since 1970 in UTC; by default, before the grace period.
    - `keep_versions`: Remove no version, only files of failed jobs.
    """

    before_ns: int | None = None
    retain_versions: int | None = None
    before_version: int | None = None
    versions: frozenset[int] | None = None
    delete_unverified: bool = False
    error_if_tagged_old_versions: bool = True
    unverified_before_ns: int | None = None
    keep_versions: bool = False

    def allows(self, manifest: Manifest) -> bool:
        """Return whether a version may be removed, by the conditions that concern it alone."""
        return (
            not self.keep_versions
            and (self.before_ns is None or manifest.timestamp_ns < self.before_ns)
            and (self.before_version is None or manifest.version < self.before_version)
            and (self.versions is None or manifest.version in self.versions)
        )

    def unverified_before(self, now: float) -> float:
        """Return the time before which an unreferenced file is removable, in seconds since 1970."""
        if self.unverified_before_ns is None:
            return now - GRACE_SECONDS
        return self.unverified_before_ns / 1e9


@dataclass(slots=True)
class CleanupPlan:
    """The versions and files to remove.

    - `manifests`: The versions to remove, oldest first, with their manifest files.
    - `files`: The other files to remove; True if no version refers to the file.
    - `folders`: Folders of indexes and blobs that may be empty afterwards.
    """

    manifests: list[tuple[int, FileInfo]] = field(default_factory=list)
    files: list[tuple[Candidate, bool]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)


class CleanupPlanner:
    """Plans one cleanup: `plan` first, and `look_again` after the transaction files were deleted.

    - `store`: Root of the table, or of one of its branches.
    - `branch`: The branch that `store` is the root of; None for the main branch.
    """

    def __init__(self, store: ObjectStore, policy: CleanupPolicy, branch: str | None) -> None:
        self._store = store
        self._policy = policy
        self._main = main_store(store, branch)
        # A copy of a branch elsewhere is an independent table, although its manifests name the
        # branch.
        self._branch = branch if self._main is not store else None
        self._kept = References()
        # References of versions to remove. Versions that are kept later stay in here: `_kept` takes
        # precedence.
        self._removed = References()
        self._removable: dict[int, ManifestLocation] = {}
        #: Versions to remove, by the paths of their transaction files.
        self._by_transaction: dict[str, int] = {}
        self._newest = 0
        #: `Manifest.identity` of the newest version; None if it could not be read.
        self._identity: tuple[int, str | None] | None = None
        #: Roots and paths of manifests that were read.
        self._seen: set[tuple[str, str]] = set()
        #: Names of all candidates.
        self._names: frozenset[str] = frozenset()
        #: Branches with references to candidates: their parent versions stay.
        self._needs_parent: set[str | None] = set()
        self._branches: Mapping[str, Branch] = {}
        self._listing = Listing([], {})
        self._is_marked = False

    def plan(self, read_version: int | None) -> CleanupPlan:
        """Determine the versions and files to remove. Changes nothing.

        - `read_version`: The caller's version: it and newer versions stay. The newest version
          always stays.

        Raises TableNotFoundError, StorageError. Raises InvalidInputError: a tag is on a removable
        version, and that is an error; or the branch does not exist in the table of its folder.
        Raises CorruptTableError, UnsupportedFeatureError: a version cannot be read, so its
        references are unknown.
        """
        if self._branch is not None and not self._main.exists(BRANCHES.path(self._branch)):
            raise InvalidInputError(
                f"{self._store.display}: its versions belong to branch {self._branch!r}, which "
                f"was not found in {self._main.display}, so the tags of these versions are "
                "unknown; open the branch by the root of its table"
            )
        listing = self._listing = list_files(self._store)
        self._names = frozenset(candidate.name for candidate in listing.candidates)
        located = list_manifests(self._store)
        if not located:
            raise versions.not_a_table(self._store)
        self._sort_versions(located, read_version)
        self._keep_staged(listing)
        self._keep_named_and_newer()
        return self._collect(listing)

    def look_again(self, *, is_marked: bool, unmarked: Collection[str] = ()) -> CleanupPlan:
        """Plan again after the transaction files of the versions to remove were deleted.

        Versions that are kept now do not get their transaction files back: another cleanup may have
        marked them as well, and may still remove them, since it has checked the tags before.

        - `is_marked`: Whether transaction files were deleted. If so, a tag is no longer an error:
          its version is kept.
        - `unmarked`: Paths of transaction files whose deletion failed. Other clients take it that
          their versions stay, so they are kept.

        Raises InvalidInputError, CorruptTableError, UnsupportedFeatureError, StorageError.
        """
        self._is_marked = is_marked
        self._keep_named_and_newer()
        self._keep_restored()
        for path in unmarked:
            self._keep(self._by_transaction.get(path, 0))
        return self._collect(self._listing)

    def is_same_table(self) -> bool:
        """Return whether the newest version of the plan still exists.

        If not, the table or branch may have been deleted and created again: then the paths of the
        manifests to remove are those of other versions. The names of all other files are random.

        Raises CorruptTableError, UnsupportedFeatureError, StorageError.
        """
        try:
            stored = read_version(self._store, self._newest)
        except (TableNotFoundError, VersionNotFoundError):
            return False
        return stored.identity == self._identity

    def _keep_named_and_newer(self) -> None:
        located, others, tags, branches, folders = call_all(
            (
                partial(list_manifests, self._store),
                partial(detached, self._store),
                partial(read_tags, self._main),
                partial(read_branches, self._main),
                lambda: list(branch_folders(self._main)),
            ),
            local=self._store.is_local,
        )
        self._keep_newer(located + others)
        self._keep_tags(tags)
        self._keep_branches(branches, folders)

    def _sort_versions(self, located: list[ManifestLocation], read_version: int | None) -> None:
        """Sort the versions into removable and remaining versions.

        Tags and branches are not considered.
        """
        self._newest = located[-1].version
        limit = self._newest if read_version is None else min(read_version, self._newest)
        retain = self._policy.retain_versions
        if retain is not None:
            limit = min(limit, located[max(len(located) - retain, 0)].version)
        removed_fragments, kept_fragments = SeenFragments(), SeenFragments()
        for location, manifest in self._read(self._store, located):
            if location.version == self._newest:
                self._identity = manifest.identity
            is_removable = manifest.version < limit and self._policy.allows(manifest)
            if is_removable:
                self._removable[manifest.version] = location
                path = f"{TRANSACTIONS}/{manifest.transaction_file}"
                self._by_transaction[path] = manifest.version
            total, known_fragments = (
                (self._removed, removed_fragments) if is_removable else (self._kept, kept_fragments)
            )
            root = self._store.object_uri
            total.add(references_of(manifest, root=root, is_own=True, seen=known_fragments))

    def _keep_staged(self, listing: Listing) -> None:
        """Keep the references of newer versions that exist as staging files only.

        An external manifest store may know these versions; it need not be available here.
        """
        staged = [
            ManifestLocation(candidate.version, candidate.info.path, NamingScheme.V2)
            for candidate in listing.candidates
            if candidate.version > self._newest
        ]
        for _, manifest in self._read(self._store, staged):
            self._kept.add(references_of(manifest, root=self._store.object_uri, is_own=True))

    def _keep_newer(self, located: list[ManifestLocation]) -> None:
        """Keep the references of versions committed since the listing, and of detached versions."""
        for _, manifest in self._read(self._store, located):
            self._kept.add(references_of(manifest, root=self._store.object_uri, is_own=True))

    def _keep_branches(self, branches: Mapping[str, Branch], folders: Sequence[str]) -> None:
        """Keep the references of other branches, and the versions that they were made from."""
        self._forget_replaced(branches)
        for name in [None, *{*branches, *folders}]:
            if name == self._branch:
                continue
            root = branch_store(self._main, name)
            for _, manifest in self._read(root, list_manifests(root) + detached(root)):
                references = references_of(manifest, root=self._store.object_uri, is_own=False)
                self._kept.add(references)
                if not self._names.isdisjoint(references.names | references.indices):
                    self._needs_parent.add(name)
        for name in branches:
            version = origin_version(name, self._branch, branches)
            if version is not None and name in self._needs_parent:
                self._keep(version)

    def _forget_replaced(self, branches: Mapping[str, Branch]) -> None:
        """Read manifests again of branches that may have been deleted and created again since."""
        unchanged = {
            branch_store(self._main, name).uri
            for name, branch in branches.items()
            if self._branches.get(name) == branch
        }
        unchanged |= {self._store.uri, self._main.uri}
        self._seen = {(root, path) for root, path in self._seen if root in unchanged}
        self._branches = branches

    def _keep_restored(self) -> None:
        """Keep the versions that restores under way are about to commit again."""
        if not self._removable or self._policy.delete_unverified:
            return
        before = self._policy.unverified_before(time.time())
        referenced = self._kept.paths | self._removed.paths
        transactions = sorted(self._store.list_tree(TRANSACTIONS), key=lambda info: info.path)
        pending = [
            info
            for info in transactions
            if info.path not in referenced and (info.modified is None or info.modified >= before)
        ]
        for version in restored_versions(self._store, pending):
            self._keep(version)

    def _keep_tags(self, tags: Mapping[str, Tag]) -> None:
        """Keep versions with a tag, or raise an error if the policy says so."""
        tagged = {
            name: tag.version
            for name, tag in tags.items()
            if tag.branch == self._branch and tag.version in self._removable
        }
        if tagged and not self._is_marked and self._policy.error_if_tagged_old_versions:
            shown = ", ".join(
                f"{name} ({version})" for name, version in sorted(tagged.items())[:10]
            )
            raise InvalidInputError(
                f"{self._store.display}: {len(tagged)} tags are on versions that this cleanup "
                f"would remove: {shown}; delete the tags, or keep these versions with "
                "error_if_tagged_old_versions=False"
            )
        for version in tagged.values():
            self._keep(version)

    def _keep(self, version: int) -> None:
        """Move a version, if it is removable, to the remaining versions."""
        location = self._removable.pop(version, None)
        manifest = find_manifest(self._store, location) if location is not None else None
        if manifest is not None:
            self._kept.add(references_of(manifest, root=self._store.object_uri, is_own=True))

    def _read(
        self, store: ObjectStore, located: list[ManifestLocation]
    ) -> Iterator[tuple[ManifestLocation, Manifest]]:
        """Yield the manifests that were not read before and still exist."""
        new = [location for location in located if (store.uri, location.path) not in self._seen]
        self._seen.update((store.uri, location.path) for location in new)
        manifests = read_each(partial(find_manifest, store), new, local=store.is_local)
        pairs = zip(new, manifests, strict=True)
        for location, manifest in progress.counted(pairs, "read_versions", len(new), "versions"):
            if manifest is not None:
                manifest.check_writable(store.display)
                yield location, manifest

    def _collect(self, listing: Listing) -> CleanupPlan:
        plan = CleanupPlan()
        for version, location in sorted(self._removable.items()):
            # Two files after an interrupted migration of manifest names.
            manifest_files = listing.manifests.get(version) or [FileInfo(location.path, 0, None)]
            plan.manifests += [(version, info) for info in manifest_files]
        before = self._policy.unverified_before(time.time())
        for candidate in listing.candidates:
            if candidate.version >= self._newest:
                # An external manifest store may use this staging file as the manifest.
                continue
            is_read = (self._store.uri, candidate.info.path) in self._seen
            if is_read and candidate.version not in self._removable:
                # The staging file is the only manifest of a remaining version: its copy failed.
                continue
            if self._is_kept(candidate):
                continue
            verified = self._removed.has_path(candidate) and candidate not in self._kept
            modified = candidate.info.modified
            is_old = modified is not None and modified < before
            if verified or is_old or self._policy.delete_unverified:
                plan.files.append((candidate, not verified))
        if self._store.is_local:
            plan.folders = self._folders(plan)
        return plan

    def _is_kept(self, candidate: Candidate) -> bool:
        if not candidate.is_temporary:
            return candidate in self._kept
        # A data file that a user committed can have a name that looks temporary.
        path = candidate.info.path
        return path in self._kept.paths or path.rsplit("/", 1)[-1] in self._kept.names

    def _folders(self, plan: CleanupPlan) -> list[str]:
        """Return the folders that lose files, and folders that an interrupted cleanup emptied."""
        folders = {
            candidate.info.path.rsplit("/", 1)[0]
            for candidate, _ in plan.files
            if candidate.info.path.count("/") > 1
        }
        for folder in self._store.list_folders(INDICES):
            if folder in self._removed.indices and folder not in self._kept.indices:
                folders.add(f"{INDICES}/{folder}")
        for folder in self._store.list_folders(DATA):
            path = f"{DATA}/{folder}"
            if f"{path}.lance" in self._removed.paths and f"{path}.lance" not in self._kept.paths:
                folders.add(path)
        # Deepest first.
        return sorted(folders, key=lambda path: (-path.count("/"), path))


def detached(store: ObjectStore) -> list[ManifestLocation]:
    """Return the locations of the manifests of detached versions."""
    return [
        ManifestLocation(0, f"{versions.FOLDER}/{name}", NamingScheme.V2)
        for name in store.list_names(versions.FOLDER)
        if _DETACHED.fullmatch(name)
    ]
