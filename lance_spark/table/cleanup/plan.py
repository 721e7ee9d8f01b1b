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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from lance_spark import progress
from lance_spark.errors import InvalidInputError, TableNotFoundError, VersionNotFoundError
from lance_spark.storage.listing import FileInfo
from lance_spark.storage.parallel import call_all, read_each
from lance_spark.storage.store import ObjectStore
from lance_spark.table.cleanup.files import INDICES, UUID, Candidate, Listing, list_files
from lance_spark.table.cleanup.references import (
    References,
    SeenFragments,
    references_of,
    restored_versions,
)
from lance_spark.table.commit.transaction import FOLDER as TRANSACTIONS
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import find_manifest, read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import ManifestLocation, NamingScheme, list_manifests
from lance_spark.table.paths import DATA
from lance_spark.table.refs.branch_store import (
    BRANCHES,
    Branch,
    branch_folders,
    origin_version,
    read_branches,
)
from lance_spark.table.refs.names import branch_store, main_store
from lance_spark.table.refs.tag_store import Tag, read_tags

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
