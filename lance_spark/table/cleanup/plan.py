"""Which versions go, and which files with them.

A version goes if the policy allows it, unless it is the newest, or newer than the version that the caller looks at, or has
a tag, or a branch was made from it and still needs files of it. A file goes if no version that stays refers to it, and

- a version that goes does (then no job is still writing it), or
- it was written before the grace period, or before a time that the caller says (`unverified_before_ns`), or the caller vouches
  that no job is running (`delete_unverified`).

Versions stay, besides those of the root itself: detached ones, and all versions of the other branches (of the main one, if
a branch is cleaned up). Branches are found by their files in `_refs/branches/` and by the folders in `tree/`, so that one
that is just being made counts. Clones elsewhere cannot be known: their versions need tags here.

Order matters, since others go on committing meanwhile:

1. The files are listed. What is written later is not in the list and cannot be removed.
2. Then the manifests are read. Whatever a commit before this step needs is known to be needed; a commit after it needs what
   it has written itself (not in the list, or younger than the grace period and in no version that goes), and otherwise what
   its base version needs, which is the newest and stays.
3. Tags, branches and versions that came in between are looked at, since these alone can call old files back: a tag or branch on
   an old version, a Restore.
4. The transaction files of versions that go are deleted: readers need none of them, and whoever has made a tag or a branch sees by them
   that its version goes (`marks`). Then the third step is taken once more (`look_again`): of two that meet, one sees the other. Restores
   that are under way are looked for, too (`cleanup_restores`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from lance_spark.errors import InvalidInputError
from lance_spark.storage.listing import FileInfo
from lance_spark.storage.read.parallel_reads import read_each
from lance_spark.storage.store import ObjectStore
from lance_spark.table.cleanup.branches import branch_folders, origin
from lance_spark.table.cleanup.files import INDICES, UUID, Candidate, Listing, list_files
from lance_spark.table.cleanup.references import KnownFragments, References, references_of
from lance_spark.table.cleanup.restores import restored_versions
from lance_spark.table.commit.transaction import FOLDER as TRANSACTIONS
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import find_manifest
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import ManifestLocation, NamingScheme, list_manifests
from lance_spark.table.paths import DATA
from lance_spark.table.refs.branch_store import Branch, branch_path, read_branches
from lance_spark.table.refs.names import branch_store, main_store
from lance_spark.table.refs.tag_store import read_tags

#: Files that no version refers to are left alone for so long: a job may be about to commit them.
GRACE_SECONDS = 7 * 24 * 3600
#: Their staging files, too: all that there is of one whose commit by an external manifest store was not finished.
_DETACHED = re.compile(rf"d[0-9]+\.manifest(?:-{UUID})?")


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """Which versions may go. A version goes only if everything that is given allows it; nothing given allows all.

    Attributes
    ----------
    before_ns : int, optional
        Versions committed before this time, in nanoseconds since 1970 in UTC.
    retain_versions : int, optional
        All but so many of the newest versions.
    before_version : int, optional
        Versions of lower number.
    versions : frozenset of int, optional
        These versions.
    delete_unverified : bool
        Whether no job is writing to the table, so that files that no version refers to can go whatever their age.
    error_if_tagged_old_versions : bool
        Whether a tag on a version that could go is an error; else the version stays.
    unverified_before_ns : int, optional
        Files that no version refers to can go if they were written before this time, in nanoseconds since 1970 in UTC; by default
        before the grace period.
    keep_versions : bool
        Whether no version goes, whatever else is allowed: only what jobs have left behind that came to nothing.
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
        """Tell whether a version may go, as far as it does not depend on the others."""
        return (
            not self.keep_versions
            and (self.before_ns is None or manifest.timestamp_ns < self.before_ns)
            and (self.before_version is None or manifest.version < self.before_version)
            and (self.versions is None or manifest.version in self.versions)
        )

    def written_before(self, now: float) -> float:
        """Return before when a file has to be written to be nobody's, in seconds since 1970."""
        if self.unverified_before_ns is None:
            return now - GRACE_SECONDS
        return self.unverified_before_ns / 1e9


@dataclass(slots=True)
class CleanupPlan:
    """What goes.

    Attributes
    ----------
    manifests : list of (int, FileInfo)
        The versions that go, oldest first, and their files.
    files : list of (Candidate, bool)
        The other files, and whether no version that goes refers to them.
    folders : list of str
        Folders of indexes and of blobs that go. Those that nothing is left in can be removed.
    """

    manifests: list[tuple[int, FileInfo]] = field(default_factory=list)
    files: list[tuple[Candidate, bool]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)


def plan_cleanup(
    store: ObjectStore,
    policy: CleanupPolicy,
    *,
    read_version: int | None = None,
    branch: str | None = None,
) -> CleanupPlan:
    """Find out what goes; nothing is changed. See `Planner`.

    Parameters
    ----------
    store : ObjectStore
        Root of the table, or of one of its branches.
    policy : CleanupPolicy
    read_version : int, optional
        This version and newer ones stay; the newest does anyway.
    branch : str, optional
        The branch that `store` is the root of; none for the main one.

    Raises
    ------
    TableNotFoundError
    InvalidInputError
        Versions with tags could go, and that is an error; or it is no branch of the table that its folder is in.
    CorruptTableError, UnsupportedFeatureError
        A version cannot be read, so that nobody can tell what it needs.
    StorageError
    """
    return Planner(store, policy, branch).plan(read_version)


class Planner:
    """Plans one cleanup: `plan`, and `look_again` once the marks are gone.

    Parameters
    ----------
    store : ObjectStore
    policy : CleanupPolicy
    branch : str, optional
        As in `plan_cleanup`.
    """

    def __init__(self, store: ObjectStore, policy: CleanupPolicy, branch: str | None) -> None:
        self._store = store
        self._policy = policy
        self._main = main_store(store, branch)
        # A copy of a branch elsewhere is a table of its own, whatever its manifests say.
        self._branch = branch if self._main is not store else None
        self._kept = References()
        # What versions that go refer to, those among them too that are kept after all: what is kept counts first.
        self._gone = References()
        self._going: dict[int, ManifestLocation] = {}
        #: Versions that go, by their transaction files.
        self._marks: dict[str, int] = {}
        self._newest = 0
        self._seen: set[tuple[str, str]] = set()
        self._names: frozenset[str] = frozenset()
        self._needs_parent: set[str | None] = set()
        self._branches: Mapping[str, Branch] = {}
        self._listing = Listing([], {})
        self._is_marked = False

    def plan(self, read_version: int | None) -> CleanupPlan:
        """Find out what goes; see `plan_cleanup`."""
        if self._branch is not None and not self._main.exists(branch_path(self._branch)):
            raise InvalidInputError(
                f"{self._store.display}: its versions are of the branch {self._branch!r}, which {self._main.display} does not "
                "have, so that nobody can tell which of them have tags; open the branch by the root of its table"
            )
        listing = self._listing = list_files(self._store)
        self._names = frozenset(candidate.name for candidate in listing.candidates)
        located = list_manifests(self._store)
        if not located:
            raise versions.not_a_table(self._store)
        self._decide(located, read_version)
        self._keep_staged(listing)
        self._look()
        return self._collect(listing)

    def look_again(self, *, is_marked: bool, unmarked: Collection[str] = ()) -> CleanupPlan:
        """Plan once more, once the marks are gone.

        Versions that are kept after all do not get theirs back: another cleanup may have taken them, too, and go on, since it has looked
        before there was anything to see.

        Parameters
        ----------
        is_marked : bool
            Whether marks of the first plan were deleted. Then it is too late to refuse because of a tag: its version is kept.
        unmarked : collection of str, optional
            Paths of those that may be there still. Whoever sees them takes it that their versions stay, and so they do.

        Raises
        ------
        InvalidInputError, CorruptTableError, UnsupportedFeatureError, StorageError
        """
        self._is_marked = is_marked
        self._look()
        self._keep_restored()
        for path in unmarked:
            self._keep(self._marks.get(path, 0))
        return self._collect(self._listing)

    def _look(self) -> None:
        self._keep_newer()
        self._keep_tags()
        self._keep_branches()

    def _decide(self, located: list[ManifestLocation], read_version: int | None) -> None:
        """Sort the versions into those that go and those that stay, but for tags and branches."""
        self._newest = located[-1].version
        limit = self._newest if read_version is None else min(read_version, self._newest)
        retain = self._policy.retain_versions
        if retain is not None:
            limit = min(limit, located[max(len(located) - retain, 0)].version)
        gone, kept = KnownFragments(), KnownFragments()
        for location, manifest in self._read(self._store, located):
            goes = manifest.version < limit and self._policy.allows(manifest)
            if goes:
                self._going[manifest.version] = location
                self._marks[f"{TRANSACTIONS}/{manifest.transaction_file}"] = manifest.version
            where, known = (self._gone, gone) if goes else (self._kept, kept)
            root = self._store.object_uri
            where.add(references_of(manifest, root=root, own=True, known=known))

    def _keep_staged(self, listing: Listing) -> None:
        """Keep what a newer version needs that only an external manifest store knows, which may not be at hand."""
        staged = [
            ManifestLocation(one.version, one.info.path, NamingScheme.V2)
            for one in listing.candidates
            if one.version > self._newest
        ]
        for _, manifest in self._read(self._store, staged):
            self._kept.add(references_of(manifest, root=self._store.object_uri, own=True))

    def _keep_newer(self) -> None:
        """Keep what has been committed since the versions were listed, and detached versions."""
        located = list_manifests(self._store) + detached(self._store)
        for _, manifest in self._read(self._store, located):
            self._kept.add(references_of(manifest, root=self._store.object_uri, own=True))

    def _keep_branches(self) -> None:
        """Keep what other branches refer to, and the versions that they were made from."""
        branches = read_branches(self._main)
        self._forget_changed(branches)
        for name in [None, *{*branches, *branch_folders(self._main)}]:
            if name == self._branch:
                continue
            root = branch_store(self._main, name)
            for _, manifest in self._read(root, list_manifests(root) + detached(root)):
                found = references_of(manifest, root=self._store.object_uri, own=False)
                self._kept.add(found)
                if not self._names.isdisjoint(found.names | found.indices):
                    self._needs_parent.add(name)
        for name in branches:
            version = origin(name, self._branch, branches)
            if version is not None and name in self._needs_parent:
                self._keep(version)

    def _forget_changed(self, branches: Mapping[str, Branch]) -> None:
        """Forget what was read of branches that may have been deleted since, and made again with the same versions."""
        same = {
            branch_store(self._main, name).uri
            for name, branch in branches.items()
            if self._branches.get(name) == branch
        }
        same |= {self._store.uri, self._main.uri}
        self._seen = {one for one in self._seen if one[0] in same}
        self._branches = branches

    def _keep_restored(self) -> None:
        """Keep the versions that restores are about to bring back."""
        if not self._going or self._policy.delete_unverified:
            return
        before = self._policy.written_before(time.time())
        known = self._kept.paths | self._gone.paths
        found = sorted(self._store.list_tree(TRANSACTIONS), key=lambda info: info.path)
        pending = [
            info
            for info in found
            if info.path not in known and (info.modified is None or info.modified >= before)
        ]
        for version in restored_versions(self._store, pending):
            self._keep(version)

    def _keep_tags(self) -> None:
        """Keep versions with a tag, or refuse to go on."""
        tagged = {
            name: tag.version
            for name, tag in read_tags(self._main).items()
            if tag.branch == self._branch and tag.version in self._going
        }
        if tagged and not self._is_marked and self._policy.error_if_tagged_old_versions:
            shown = ", ".join(
                f"{name} ({version})" for name, version in sorted(tagged.items())[:10]
            )
            raise InvalidInputError(
                f"{self._store.display}: {len(tagged)} tags are on versions that are old enough to go: {shown}; "
                "delete the tags, or keep these versions with error_if_tagged_old_versions=False"
            )
        for version in tagged.values():
            self._keep(version)

    def _keep(self, version: int) -> None:
        location = self._going.pop(version, None)
        manifest = find_manifest(self._store, location) if location is not None else None
        if manifest is not None:
            self._kept.add(references_of(manifest, root=self._store.object_uri, own=True))

    def _read(
        self, store: ObjectStore, located: list[ManifestLocation]
    ) -> Iterator[tuple[ManifestLocation, Manifest]]:
        """Read the manifests that have not been read; those that another cleanup has removed are left out."""
        new = [one for one in located if (store.uri, one.path) not in self._seen]
        self._seen.update((store.uri, one.path) for one in new)
        manifests = read_each(partial(find_manifest, store), new, local=store.is_local)
        for location, manifest in zip(new, manifests, strict=True):
            if manifest is not None:
                manifest.check_writable(store.display)
                yield location, manifest

    def _collect(self, listing: Listing) -> CleanupPlan:
        plan = CleanupPlan()
        for version, location in sorted(self._going.items()):
            # A migration that was killed has left the file under two names.
            known = listing.manifests.get(version) or [FileInfo(location.path, 0, None)]
            plan.manifests += [(version, info) for info in known]
        before = self._policy.written_before(time.time())
        for candidate in listing.candidates:
            if candidate.version >= self._newest:
                # It may be the manifest itself, as an external manifest store knows it.
                continue
            is_read = (self._store.uri, candidate.info.path) in self._seen
            if is_read and candidate.version not in self._going:
                # All that there is of a version, since it could not be copied.
                continue
            if self._is_kept(candidate):
                continue
            verified = self._gone.own(candidate) and candidate not in self._kept
            modified = candidate.info.modified
            old = modified is not None and modified < before
            if verified or old or self._policy.delete_unverified:
                plan.files.append((candidate, not verified))
        if self._store.is_local:
            plan.folders = self._folders(plan)
        return plan

    def _is_kept(self, candidate: Candidate) -> bool:
        if not candidate.is_temporary:
            return candidate in self._kept
        # A file that was brought along can have any name.
        path = candidate.info.path
        return path in self._kept.paths or path.rsplit("/", 1)[-1] in self._kept.names

    def _folders(self, plan: CleanupPlan) -> list[str]:
        """Return the folders that lose files, and those that a cleanup that was killed has left empty."""
        found = {
            candidate.info.path.rsplit("/", 1)[0]
            for candidate, _ in plan.files
            if candidate.info.path.count("/") > 1
        }
        for folder in self._store.list_folders(INDICES):
            if folder in self._gone.indices and folder not in self._kept.indices:
                found.add(f"{INDICES}/{folder}")
        for folder in self._store.list_folders(DATA):
            path = f"{DATA}/{folder}"
            if f"{path}.lance" in self._gone.paths and f"{path}.lance" not in self._kept.paths:
                found.add(path)
        # Those further down first.
        return sorted(found, key=lambda path: (-path.count("/"), path))


def detached(store: ObjectStore) -> list[ManifestLocation]:
    """Return the manifests of detached versions."""
    return [
        ManifestLocation(0, f"{versions.FOLDER}/{name}", NamingScheme.V2)
        for name in store.list_names(versions.FOLDER)
        if _DETACHED.fullmatch(name)
    ]
