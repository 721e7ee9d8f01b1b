"""Judges a schedule while it runs, and what it leaves behind.

| what has to be so | when it is looked at |
| --- | --- |
| versions are contiguous, no manifest ever changes, no data file either | each time that a manifest comes to be |
| a version can be read, and holds what the one before it holds, changed by one operation | then too |
| an operation makes one version at most | then too |
| an acknowledged operation has made its version | when it returns |
| one that fails otherwise than by `UncertainCommitError` has made none, and makes none later | when it raises, and ever after |
| only `LanceError` is raised; a store that does not fail makes no `StorageError` | when it raises |
| an operation that nothing befell leaves no file that no version needs | when it ends |
| a reader sees committed versions only, each the same whenever it is read, and the newest one never goes back | when it has read |
| versions that nobody removed can be read, the newest ones by pylance too | at the end |
| versions that have a tag, and those that a branch was made from, stay, whoever cleaned up | at the end |
| a week later cleanup has left no file that no version needs | at the end |
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from lance_spark import open_dataset
from lance_spark.errors import (
    CommitConflictError,
    CorruptError,
    LanceError,
    MissingFileError,
    StorageError,
    TableNotFoundError,
    VersionNotFoundError,
)
from lance_spark.table.commit.transaction import FOLDER as TRANSACTIONS
from lance_spark.table.commit.transaction import read_transaction
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.paths import deletion_path
from tests.faults.model import State, TwiceError, read
from tests.faults.operations import PROPERTY, Operation, is_uncertain
from tests.faults.schedule import Actor

_MANIFEST = re.compile(r"(?:(.+)/)?_versions/(\d{20})\.manifest")
_MAX_U64 = 2**64 - 1
#: Files that have a meaning only by manifests that refer to them.
_OWNED = re.compile(r"(?:tree/.+/)?(?:data|_deletions|_transactions|_indices)/.+")
#: Faults that keep a client from deleting a file, or that restore a deleted file.
_LEAVES = (" of delete ", " of unlink ", " of remove ", "late effect", "duplicate")

_MADE_ANEW = "was deleted and created again"


class Files(Protocol):
    """The files of the table, without schedule or faults. Paths are below the table's root."""

    uri: str

    def names(self) -> set[str]: ...

    def has_parts(self, path: str) -> bool:
        """Return whether an unfinished upload has parts at a path of the store."""


@dataclass
class Call:
    """An operation that is running, or has ended."""

    name: str
    writer: str
    root: str
    version: int
    operation: Operation
    outcome: str = "under way"
    error: str = ""
    versions: list[int] = field(default_factory=list)


class Checker:
    """Sees each new manifest, each call and its answer, and each read.

    Attributes
    ----------
    wrong : list of str
        What must not be so.
    outcomes : Counter
        How often operations of each kind ended how.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._calls: dict[str, Call] = {}
        self._newest: dict[str, int] = {}
        self._needed: set[str] = set()
        self._needs: dict[tuple[str, int], set[str]] = {}
        #: Whether the table did not exist at the beginning.
        self.new = False
        #: Whether commits clean up old versions.
        self.cleans_up = False
        #: By root: versions lower than this number may have been removed.
        self._removable: dict[str, int] = {}
        self._names: dict[str, set[Any]] = {}
        self._row_ids: dict[tuple[str, int], int] = {}
        self.states: dict[tuple[str, int], State] = {}
        #: Versions that were created again after a cleanup.
        self.made_again: set[tuple[str, int]] = set()
        self.wrong: list[str] = []
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.reads = 0

    def say(self, text: str) -> None:
        self.wrong.append(text)

    def created(self, path: str, first: bool) -> None:
        """Check a new file; `first` is false if another file had this name before."""
        match = _MANIFEST.fullmatch(path)
        if not first:
            if match is not None or _OWNED.fullmatch(path):
                self.say(f"{path} was replaced by other bytes")
            return
        if match is not None:
            self._committed(match[1] or "", _MAX_U64 - int(match[2]))

    def setup(self, root: str, version: int, known: dict[object, Any]) -> None:
        """Record a version that was created before the schedule began. `known` has its state from
        an earlier schedule with the same table.
        """
        if (root, version) not in known:
            dataset = open_dataset(self._uri(root), version)
            known[root, version] = read(dataset), dataset._table.manifest
        state, manifest = known[root, version]
        self.states[root, version] = state
        self._newest[root] = version
        self._note(root, version, manifest)
        if self.cleans_up and not root:
            self._removable[root] = version - 1

    def _uri(self, root: str) -> str:
        return f"{self._files.uri}/{root}" if root else self._files.uri

    def _committed(self, root: str, version: int) -> None:
        label = f"version {version} of {root or 'main'}"
        try:
            dataset = open_dataset(self._uri(root), version)
            manifest = dataset._table.manifest
            self._note(root, version, manifest)
            transaction = read_transaction(dataset._table.store, manifest)
            assert transaction is not None
            state = read(dataset)
        except (LanceError, TwiceError) as error:
            if (root, version) in self.states:
                self.made_again.add((root, version))
            elif not (root.startswith("tree/own") and isinstance(error, MissingFileError)):
                # The branch does not exist yet. It is not created if its version is being removed.
                self.say(f"{label} cannot be read as it is committed: {error!r}")
            return
        if (root, version) in self.states:
            # The version replaces a removed version. Its writer must not take it for a commit.
            self.made_again.add((root, version))
            return
        newest = self._newest.get(root, 0)
        before = State() if version == 1 and not newest else self.states.get((root, version - 1))
        self.states[root, version] = state
        self._newest[root] = version
        if self.cleans_up and not root:
            self._removable[root] = max(self._removable.get(root, 0), version - 1)
        operation = transaction.operation.name
        if operation == "clone":
            source = self.states.get(("", version))
            if source is not None and state != source:
                self.say(f"{label}, a clone: {_difference(source, state)}")
            return
        if version != newest + 1 or before is None:
            self.say(f"{label} follows version {newest}")
            return
        name = transaction.properties.get(PROPERTY)
        if name is None:
            if operation != "reserve_fragments" or state != before:
                self.say(f"{label} was made by nobody: {operation}")
            return
        call = self._calls[name]
        call.versions.append(version)
        if call.root != root:
            self.say(f"{label} was made by {name}, which was about {call.root or 'main'}")
        if len(call.versions) > 1:
            self.say(f"{name} ({call.operation.kind}) was made twice: {call.versions}")
        if call.outcome == "failed":
            self.say(f"{label} was made by {name}, which had failed: {call.error}")
        assert call.operation.effect is not None
        past = {
            number: past_state
            for (root_of_state, number), past_state in self.states.items()
            if root_of_state == root
        }
        expected = call.operation.effect(before, past)
        if state != expected and (root, call.operation.calls_back) not in self.made_again:
            self.say(f"{label}, by {name} ({call.operation.kind}): {_difference(expected, state)}")
        self._check_row_ids(label, before, state)

    def _check_row_ids(self, label: str, before: State, state: State) -> None:
        """Check that rows keep their ids, and that no other row had one of these ids before."""
        kept = before.row_ids.keys() & state.row_ids.keys()
        moved = [row for row in kept if before.row_ids[row] != state.row_ids[row]]
        if moved:
            self.say(f"{label} gives row {moved[0]} another row id")
        for row, number in state.row_ids.items():
            owner = self._row_ids.setdefault((label.rpartition(" ")[2], number), row)
            if owner != row:
                self.say(f"{label} gives row {row} the row id {number} of row {owner}")

    def _note(self, root: str, version: int, manifest: Manifest) -> None:
        files = needed(root, manifest)
        self._needed |= files
        if not root.startswith("tree/own"):
            self._needs[root, version] = files

    def began(self, call: Call) -> None:
        self._calls[call.name] = call
        self._check_kept(call.operation.name)
        if call.operation.removes:
            self._removable[call.root] = max(self._removable.get(call.root, 0), call.version)

    def ended(self, call: Call, error: BaseException | None, actor: Actor) -> None:
        """Judge the result of an operation."""
        operation, faults = call.operation, actor.faults
        call.error = "" if error is None else f"{type(error).__name__}: {error}"
        name = f"{call.name} ({operation.kind})"
        if error is None:
            call.outcome = "done"
            if operation.effect is not None and not call.versions and operation.kind != "compact":
                self.say(f"{name} is acknowledged, and no version has it")
        elif isinstance(error, LanceError) and is_uncertain(error):
            call.outcome = "uncertain"
        else:
            call.outcome = "failed"
            if not isinstance(error, LanceError):
                self.say(f"{name} raised {error!r}")
            if call.versions and operation.effect is not None:
                self.say(f"{name} failed, and version {call.versions} has it: {call.error}")
            if not faults:
                self._judge(call, name, error)
        self.outcomes[operation.kind, call.outcome] += 1
        if operation.name:
            self._named(call, error)
        if operation.clone and call.outcome != "uncertain":
            self._check_clone(name, call, actor)
        if call.outcome != "uncertain" and not operation.name:
            remaining = {
                path for path in actor.created if _OWNED.fullmatch(path)
            } & self._files.names()
            remaining = {
                path for path in remaining - self._needed if not _kept_from_going(path, faults)
            }
            if faults and operation.kind == "append_once":
                # One of its tries may have been uncertain.
                remaining.clear()
            if remaining:
                self.say(f"{name}, {call.outcome}, left {sorted(remaining)} behind: {faults}")
        for path in actor.begun:
            if self._files.has_parts(path) and f" of abort {path}" not in " ".join(faults):
                self.say(f"{name}, {call.outcome}, left parts of {path} behind: {faults}")

    def _judge(self, call: Call, name: str, error: BaseException) -> None:
        """Judge an error that no fault caused."""
        missing = isinstance(error, MissingFileError) and self._removable
        if missing:
            return
        if isinstance(error, StorageError | CorruptError | TableNotFoundError):
            self.say(f"{name} failed, and nothing had befallen it: {call.error}")
        recreated = any(root == call.root for root, _ in self.made_again)
        if isinstance(error, VersionNotFoundError) and _MADE_ANEW in str(error) and not recreated:
            self.say(f"{name} found another version than there had been: {call.error}")
        if isinstance(error, CommitConflictError) and not self._others(call):
            self.say(f"{name} met a conflict with nobody: {call.error}")

    def _check_clone(self, name: str, call: Call, actor: Actor) -> None:
        """Check that a clone is complete or absent. Its content is checked when its manifest is
        created.
        """
        root, faults = call.operation.clone, actor.faults
        existing_paths = {path for path in self._files.names() if path.startswith(f"{root}/")}
        has_manifest = any(_MANIFEST.fullmatch(path) for path in existing_paths)
        if has_manifest != (call.outcome == "done"):
            self.say(f"{name}, {call.outcome}: {sorted(existing_paths)}: {call.error}")
        elif any(f"{root}/_versions" in fault for fault in faults):
            # A clone deletes no files if it is uncertain whether the table exists.
            return
        remaining = {
            path
            for path in existing_paths.intersection(actor.created)
            if not _kept_from_going(path, faults)
        }
        if remaining and not has_manifest:
            self.say(f"{name}, {call.outcome}, left {sorted(remaining)} behind: {faults}")

    def _others(self, call: Call) -> bool:
        return self._newest.get(call.root, 0) > call.version

    def _named(self, call: Call, error: BaseException | None) -> None:
        """Record what a tag or branch that only one writer uses may stand for."""
        operation = call.operation
        known = self._names.setdefault(operation.name, {None})
        if error is None:
            self._names[operation.name] = {operation.value}
        elif call.outcome == "uncertain":
            known.add(operation.value)
            if operation.kind == "update tag":
                # Both the new version and the old version may have been removed.
                known.add(None)

    def opened(self, newest_seen: dict[str, int], root: str, version: int) -> None:
        """Judge which version a reader found as the newest."""
        if version < newest_seen.get(root, 0):
            self.say(
                f"the newest version of {root or 'main'} went back to {version} from {newest_seen}"
            )
        newest_seen[root] = version

    def saw(self, root: str, version: int, state: State) -> None:
        """Judge the content that a reader read."""
        self.reads += 1
        known = self.states.get((root, version))
        if known is None:
            self.say(f"a reader saw version {version} of {root or 'main'}, which nobody committed")
        elif state != known and (root, version) not in self.made_again:
            self.say(
                f"a reader saw version {version} of {root or 'main'} otherwise: "
                f"{_difference(known, state)}"
            )

    def unread(self, root: str, version: int, error: BaseException, faults: list[str]) -> None:
        """Judge a read that failed."""
        if not isinstance(error, LanceError):
            self.say(f"a reader of version {version} raised {error!r}")
        elif isinstance(error, TableNotFoundError) and self.new and not version:
            # The table did not exist yet.
            return
        elif not faults and not (
            isinstance(error, MissingFileError | VersionNotFoundError)
            and version < self._removable.get(root, 0)
        ):
            self.say(
                f"a reader of version {version} failed, and nothing had befallen it: {error!r}"
            )

    def finish(self) -> None:
        """Judge the store after all writers and readers have ended."""
        names = self._files.names()
        for (root, version), files in self._needs.items():
            if version >= self._removable.get(root, 0) and not files <= names:
                self.say(f"version {version} of {root or 'main'} misses {sorted(files - names)}")
        for root, version in self._newest.items():
            if root.startswith("tree/own"):
                continue
            try:
                dataset = open_dataset(self._uri(root))
                newest_state = read(dataset)
            except (LanceError, TwiceError) as error:
                self.say(f"the newest version of {root or 'main'} cannot be read: {error!r}")
                continue
            if dataset.version != version:
                self.say(
                    f"the newest version of {root or 'main'} is {dataset.version}, not {version}"
                )
            elif newest_state != self.states[root, version]:
                self.say(
                    f"version {version} has changed: "
                    f"{_difference(self.states[root, version], newest_state)}"
                )
        self._check_names()
        for name in self._names:
            self._check_kept(name)

    def _check_kept(self, name: str) -> None:
        """Check the version of a tag or branch whose creation was acknowledged."""
        version, *other_versions = self._names.get(name, {None})
        if version is None or other_versions:
            return
        root, version_to_open = (f"tree/{name}", None) if name.startswith("own") else ("", version)
        try:
            kept_state = read(open_dataset(self._uri(root), version_to_open))
        except (LanceError, TwiceError) as error:
            self.say(f"version {version} of {name} cannot be read: {error!r}")
            return
        if kept_state != self.states["", version]:
            difference = _difference(self.states["", version], kept_state)
            self.say(f"version {version} of {name} has changed: {difference}")

    def roots(self) -> list[str]:
        """Return the branches that exist from the beginning, the main branch last."""
        roots = (root for root in self._newest if not root.startswith(("tree/own", "clones/")))
        return sorted(roots, reverse=True)

    def _check_names(self) -> None:
        if not self.states:
            return
        dataset = open_dataset(self._files.uri)
        tags = {name: tag["version"] for name, tag in dataset.tags.list().items()}
        branches = {
            name: branch["parent_version"] for name, branch in dataset.branches.list().items()
        }
        existing = {**tags, **branches}
        for name, possible in self._names.items():
            if existing.get(name) not in possible:
                self.say(f"{name} stands for {existing.get(name)}, not for one of {possible}")

    def unneeded(self) -> set[str]:
        """Return the files of the table that no existing version needs. Files of branches that
        writers create are left out.
        """
        names = self._files.names()
        used: set[str] = set()
        for name in names:
            match = _MANIFEST.fullmatch(name)
            if match is not None:
                root = match[1] or ""
                dataset = open_dataset(self._uri(root), _MAX_U64 - int(match[2]))
                used |= needed(root, dataset._table.manifest)
        return {
            name
            for name in names
            if not name.startswith(("tree/own", "clones/"))
            and (_OWNED.fullmatch(name) or name.endswith(".tmp"))
        } - used


def _kept_from_going(path: str, faults: list[str]) -> bool:
    """Return whether a fault kept a file from being deleted, or restored it."""
    faults_of_path = " ".join(fault for fault in faults if path in fault)
    return any(effect in faults_of_path for effect in _LEAVES)


def needed(root: str, manifest: Manifest) -> set[str]:
    """Return the files that a version refers to."""
    prefix = f"{root}/" if root else ""
    paths = {f"{prefix}{TRANSACTIONS}/{manifest.transaction_file}"}
    for fragment in manifest.fragments:
        for file in fragment.files:
            paths.add(f"{prefix if file.base_id is None else ''}data/{file.path}")
        deletions = fragment.deletion_file
        if deletions is not None:
            base = prefix if deletions.base_id is None else ""
            paths.add(base + deletion_path(deletions, fragment.id))
    return paths


def _difference(expected: State, actual: State) -> str:
    if expected.columns != actual.columns:
        return f"columns {dict(actual.columns)}, not {dict(expected.columns)}"
    if expected.config != actual.config:
        return f"configuration {actual.config}, not {expected.config}"
    missing = sorted(expected.rows.keys() - actual.rows.keys())
    surplus = sorted(actual.rows.keys() - expected.rows.keys())
    if missing or surplus:
        return f"rows missing {missing}, rows too many {surplus}"
    different = [
        number for number in expected.rows if expected.rows[number] != actual.rows[number]
    ][:3]
    return "; ".join(f"{actual.rows[number]}, not {expected.rows[number]}" for number in different)
