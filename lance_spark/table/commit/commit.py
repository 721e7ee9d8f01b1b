"""Commits: the only code that writes manifests of the history.

1. List the versions. Each version after the one that the change was planned on, or last checked
   against, has a transaction. The operation decides whether it conflicts (`operations/`). If it
   must be rebased, it is, and its transaction then names the newest version as the planned one.
2. Write the transaction to `_transactions/`, and build the manifest on the newest version.
3. Create the manifest only if that version is absent. This is the commit.
4. If another writer was faster, wait a random time and start again.

A store that fails in step 3 may have created the file. The next round decides: a version with the
UUID of the transaction is the own one; a version of another client in its place means that the own
one will never exist. The same holds for the answer "exists already" to a repeated request.

The store cannot reject a version number that was committed and then removed by cleanup. So a slow
commit verifies its version after step 3 (`version_check`).
"""

from __future__ import annotations

import math
import random
import time
from contextlib import suppress
from dataclasses import replace

from lance_spark.arguments import check_least
from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    LanceError,
    MissingFileError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    UncertainCommitError,
    naming,
)
from lance_spark.storage.errors import is_refusal
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.detached import commit_detached
from lance_spark.table.commit.idempotency import WriteToken, committed_before
from lance_spark.table.commit.transaction import FOLDER, Transaction, read_transaction
from lance_spark.table.commit.version_check import VersionSlot, slot_of
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.manifest.codec import (
    check_identity,
    encode,
    find_manifest,
    read_manifest,
    read_version,
)
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import ManifestLocation
from lance_spark.table.operations.base import Conflict, Operation, Rebase
from lance_spark.table.operations.metadata.clone import Clone
from lance_spark.table.paths import TablePaths
from lance_spark.table.refs.removal_guard import check_stays

DEFAULT_MAX_RETRIES = 20
_MAX_STORE_FAILURES = 3
#: Seconds during which a version that was read is not read again, if that takes a request.
_KNOWN_SECONDS = 10.0
_FIRST_WAIT = 0.01
_LONGEST_WAIT = 3.0
_AUTO_CLEANUP = "lance.auto_cleanup.interval"


def commit(
    store: ObjectStore,
    transaction: Transaction,
    base: Manifest | None,
    *,
    max_retries: int = DEFAULT_MAX_RETRIES,
    enable_stable_row_ids: bool = False,
    detached: bool = False,
    once: WriteToken | None = None,
) -> Manifest:
    """Make a change the newest version of a table, or a detached version.

    Parameters
    ----------
    store : ObjectStore
        The table's root.
    transaction : Transaction
    base : Manifest, optional
        The version that the change was planned on; None to create the table.
    max_retries : int
        Maximum number of retries after other clients committed first.
    enable_stable_row_ids : bool
        For a new table.
    detached : bool
        Commit a version outside of the history, which has no conflicts; see `commit_detached`.
    once : Once, optional
        Token of a change that must happen only once. Its properties become those of the
        transaction.

    Returns
    -------
    Manifest
        The new version.

    Raises
    ------
    CommitConflictError
        Another client committed a conflicting change, or `max_retries` were exceeded.
    AlreadyCommittedError
        The change of `once` is in the history already, or another client committed it meanwhile.
    TableExistsError
        Another client created the table first.
    UnsupportedFeatureError
        The table needs features that this release does not support.
    InvalidInputError
        The change was planned on a detached version, or does not match the table.
    UncertainCommitError
        The store failed, and it is unknown whether the change was committed.
    StorageError
        The store failed, and the change was not committed.
    """
    with naming(store.display):
        if detached:
            if once is not None:
                raise InvalidInputError(
                    f"{store.display}: a detached version is in no history, so that nobody can "
                    "tell whether it was made before"
                )
            return commit_detached(store, transaction, base)
        if base is not None and versions.is_detached(base.version):
            raise InvalidInputError(
                f"{store.display}: version {base.version} is detached: nothing but detached "
                "versions can be based on it"
            )
        if once is not None:
            transaction = replace(
                transaction, properties={**transaction.properties, **once.properties()}
            )
            if base is not None:
                _check_once(store, base, once)
        attempts = _Attempts(store, transaction, base, enable_stable_row_ids, once)
        try:
            manifest = attempts.run(max_retries)
        except LanceError as error:
            if attempts.uncertain is None:
                attempts.clean_up()
                raise
            raise UncertainCommitError(
                f"{store.display}: the store failed while version {attempts.tried} was committed "
                f"({attempts.uncertain}); "
                f"look whether a version with the transaction {transaction.uuid} appears before "
                "writing again"
            ) from error
        if base is not None and _AUTO_CLEANUP in manifest.message.config:
            from lance_spark.table.cleanup.automatic import clean_up_after_commit

            clean_up_after_commit(store, manifest)
        return manifest


def _check_once(store: ObjectStore, manifest: Manifest, once: WriteToken) -> None:
    version = committed_before(store, manifest, once)
    if version is not None:
        raise once.error(store, version)


class _Attempts:
    """The attempts of one commit, until it succeeds or fails.

    Attributes
    ----------
    tried : int
        The version that was tried last.
    uncertain : StorageError or None
        The error that left it unknown whether this commit created that version.
    """

    def __init__(
        self,
        store: ObjectStore,
        transaction: Transaction,
        base: Manifest | None,
        enable_stable_row_ids: bool,
        once: WriteToken | None,
    ) -> None:
        self._once = once
        self._store = store
        self._transaction = transaction
        self._base = base
        self._newest = base
        self._committed: list[Operation] = []
        self._needs_rebase = False
        self._enable_stable_row_ids = enable_stable_row_ids
        self._transaction_file: str | None = None
        self._written: list[str] = []
        self._started = 0.0
        self.tried = 0
        self.uncertain: StorageError | None = None

    def run(self, max_retries: int) -> Manifest:
        """Try until the commit succeeds; raises as `commit`."""
        failures = 0
        wait = _FIRST_WAIT
        check_least("max_retries", max_retries, 0)
        for _ in range(max_retries + 1):
            started = time.monotonic()
            manifests = self._manifests()
            self._check_same(manifests)
            own = self._catch_up(manifests)
            if own is not None:
                return self._made(own)
            self._started = started
            try:
                manifest = self._attempt(versions.scheme_for_commit(self._store, manifests))
            except _PutFailedError as failed:
                failures += 1
                if failures > _MAX_STORE_FAILURES:
                    raise failed.error from None
                manifest = None
            if manifest is not None:
                self._made(manifest, time.monotonic() - started)
                versions.write_hint(self._store, manifest.version)
                return manifest
            # The duration of a round indicates how many writers can take turns.
            wait = min(max(2 * wait, time.monotonic() - started), _LONGEST_WAIT)
            time.sleep(random.uniform(0, wait))  # noqa: S311 - no secret
        own = self._catch_up(self._manifests())
        if own is not None:
            return self._made(own)
        raise CommitConflictError(
            f"{self._store.display}: other writers were faster {max_retries + 1} times, last with "
            f"version {self.tried}; "
            "commit again, or allow more retries",
            retryable=True,
        )

    def _made(self, own: Manifest, seconds: float = math.inf) -> Manifest:
        """Verify the new version, and delete the files of failed attempts."""
        self._check_place(own, seconds)
        used = frozenset(self._transaction.operation.deletion_files)
        self._delete([path for path in self._written if path not in used])
        return own

    def _check_place(self, own: Manifest, seconds: float) -> None:
        try:
            place = slot_of(self._store, own.version, seconds)
        except StorageError as error:
            self.uncertain = error
            raise
        if place is VersionSlot.OWN:
            return
        if place is VersionSlot.ANOTHERS and self._transaction_file is not None:
            # Nobody gives it a name then, or restores it (`marks`): what it is built on may be
            # gone.
            self._delete([self._transaction_file])
        self.uncertain = StorageError(
            f"version {own.version} may have been there before, and cleaned up"
        )
        raise self.uncertain

    def clean_up(self) -> None:
        """Delete the files of all attempts; the change was not committed."""
        written = list(self._written)
        if self._transaction_file is not None:
            written.append(self._transaction_file)
        self._delete(written)

    def _delete(self, paths: list[str]) -> None:
        # Left there, they would be files that nothing refers to; cleanup finds those. Nothing may
        # look as if a commit that is done had failed.
        with suppress(LanceError):
            self._store.delete(paths)

    def _manifests(self) -> list[ManifestLocation]:
        if self._newest is None:
            return versions.list_manifests(self._store)
        return versions.list_since(self._store, self._newest.version)

    def _check_same(self, manifests: list[ManifestLocation]) -> None:
        """Verify that the base is still the version that was read: the table can be recreated."""
        newest = self._newest
        if newest is None:
            return
        known = 0.0 if self._store.is_local else _KNOWN_SECONDS
        if time.monotonic() - newest.read_at < known:
            return
        for location in manifests:
            there = (
                find_manifest(self._store, location) if location.version == newest.version else None
            )
            if there is None:
                continue
            check_identity(self._store.display, there, newest.identity)
            newest.read_at = there.read_at

    def _catch_up(self, manifests: list[ManifestLocation]) -> Manifest | None:
        """Advance to the newest version; return the own version, if it exists."""
        newest = self._newest
        if newest is None:
            return self._created(manifests)
        for location in manifests:
            if location.version <= newest.version:
                continue
            if location.version != newest.version + 1:
                raise self._cleaned_up(newest.version + 1)
            try:
                manifest = read_manifest(self._store, location)
            except MissingFileError:
                raise self._cleaned_up(location.version) from None
            committed = read_transaction(self._store, manifest)
            if committed is not None and committed.uuid == self._transaction.uuid:
                self.uncertain = None
                return manifest
            if location.version == self.tried:
                self._rule_out(location.version)
            if committed is not None and isinstance(committed.operation, Clone):
                # Two writers create one table: one of them is about to fail.
                raise CommitConflictError(
                    f"{self._store.display}: version {manifest.version} is the first one of a "
                    "clone that somebody is making there",
                    retryable=True,
                )
            if self._once is not None and self._once.is_met_by(committed):
                raise self._once.error(self._store, manifest.version)
            self._check(manifest, committed.operation if committed else None)
            self._check_bases(manifest)
            newest = manifest
        if not manifests or manifests[-1].version < newest.version:
            raise TableNotFoundError(
                f"{self._store.display}: version {newest.version}, which the change was planned "
                "on, is gone; "
                "the table was deleted"
            )
        self._newest = newest
        return None

    def _created(self, manifests: list[ManifestLocation]) -> Manifest | None:
        if not manifests:
            return None
        first = read_manifest(self._store, manifests[0])
        committed = read_transaction(self._store, first)
        if committed is not None and committed.uuid == self._transaction.uuid:
            self.uncertain = None
            return first
        if first.version <= self.tried:
            self._rule_out(first.version)
        if self._once is not None:
            _check_once(self._store, read_manifest(self._store, manifests[-1]), self._once)
        raise TableExistsError(
            f"{self._store.display}: there is a table already, with "
            f"{versions.describe(manifests)}; "
            "append to it, overwrite it, or choose another path"
        )

    def _rule_out(self, version: int) -> None:
        """Record that the tried version belongs to another client."""
        if self.uncertain is None:
            return
        # The other client can have committed at any time up to now.
        seconds = time.monotonic() - self._started
        if slot_of(self._store, version, seconds) is not VersionSlot.OWN:
            # The version that was removed can have been the own one.
            raise self.uncertain
        self.uncertain = None

    def _check(self, manifest: Manifest, committed: Operation | None) -> None:
        own = self._transaction.operation
        conflict = Conflict.RETRYABLE if committed is None else own.conflict(committed)
        if committed is not None and conflict in (Conflict.COMPATIBLE, Conflict.REBASE):
            self._committed.append(committed)
            self._needs_rebase = self._needs_rebase or conflict is Conflict.REBASE
            return
        other = "transaction that it does not name" if committed is None else committed.kind
        retryable = conflict is Conflict.RETRYABLE
        what = (
            f"this {own.kind} was overtaken by version {manifest.version} "
            f"({other or 'unknown operation'})"
            if retryable
            else f"this {own.kind} contradicts version {manifest.version} ({other})"
        )
        advice = (
            "plan it again on the newest version" if retryable else "look at what changed meanwhile"
        )
        raise CommitConflictError(
            f"{self._store.display}: {what}, committed after version "
            f"{self._transaction.read_version}, "
            f"which it was planned on; {advice}",
            retryable=retryable,
        )

    def _check_bases(self, manifest: Manifest) -> None:
        """Refuse to continue if base paths changed: files may be at the previous ones."""
        if self._base is None or not self._base.base_paths:
            return
        now = manifest.base_paths
        for number, base in self._base.base_paths.items():
            other = now.get(number)
            if other is None or (other.path, other.is_dataset_root) != (
                base.path,
                base.is_dataset_root,
            ):
                raise CommitConflictError(
                    f"{self._store.display}: version {manifest.version} gave the base path "
                    f"{number} another path after this "
                    f"{self._transaction.operation.kind} was planned; plan it again on the newest "
                    "version",
                    retryable=True,
                )

    def _cleaned_up(self, version: int) -> CommitConflictError:
        return CommitConflictError(
            f"{self._store.display}: version {version}, committed since this "
            f"{self._transaction.operation.kind} was "
            "planned, has been cleaned up, so that nobody can tell whether they fit; plan it again "
            "on the newest version",
            retryable=True,
        )

    def _attempt(self, scheme: versions.NamingScheme) -> Manifest | None:
        """Create the next version; None if another client created it."""
        store, newest = self._store, self._newest
        if self._needs_rebase:
            self._rebase()
        operation = self._transaction.operation
        if newest is not None:
            newest.check_writable(store.display)
        called_back: list[Manifest] = []

        def read_older(version: int) -> Manifest:
            called_back.append(read_version(store, version))
            return called_back[-1]

        draft = ManifestBuilder(
            newest,
            enable_stable_row_ids=self._enable_stable_row_ids,
            read_version=read_older,
            planned_on=self._transaction.read_version,
            paths=None if newest is None else self._paths(newest),
        )
        operation.apply(draft)
        message = self._transaction.encode()
        writes_file = newest is None or newest.flags.writes_transaction_files
        proto = draft.finish(self._transaction.file_name if writes_file else "")
        data = encode(proto, draft.index_section, message, draft.dictionaries)
        location = scheme.locate(proto.version)
        if writes_file:
            self._write_transaction(f"{FOLDER}/{self._transaction.file_name}", message)
        for manifest in called_back:
            # A cleanup that does not see the file that was just written has taken that of this
            # version.
            check_stays(store, manifest)
        self.tried = location.version
        try:
            created = versions.create_manifest(store, location, data)
        except StorageError as error:
            if is_refusal(error):
                raise
            self.uncertain = error
            raise _PutFailedError(error) from error
        if not created:
            # Object stores answer so to their own repeated requests: nobody knows whose it is
            # before somebody has looked.
            if not store.is_local:
                self.uncertain = StorageError(f"{store.name(location.path)} is there already")
            return None
        self.uncertain = None
        return Manifest(
            proto,
            store.name(location.path),
            index_section=draft.index_section,
            transaction_section=message,
            dictionaries=draft.dictionaries,
            size_bytes=len(data),
        )

    def _rebase(self) -> None:
        base, newest = self._base, self._newest
        assert base is not None
        assert newest is not None
        operation = self._transaction.operation
        rebased = operation.rebase(
            Rebase(base, newest, tuple(self._committed), self._paths(newest), self._written)
        )
        if rebased is not operation:
            self._transaction = replace(
                self._transaction, operation=rebased, read_version=newest.version
            )
        self._base = newest
        self._committed.clear()
        self._needs_rebase = False

    def _paths(self, manifest: Manifest) -> TablePaths:
        return TablePaths(self._store, manifest.base_paths, self._store.options)

    def _write_transaction(self, path: str, message: bytes) -> None:
        if path == self._transaction_file:
            return
        if self._transaction_file is not None:
            self._delete([self._transaction_file])
        # If only the answer was lost, the file exists.
        self._transaction_file = path
        # The manifest has a copy, so this file may be lost in a crash.
        self._store.write_bytes(path, message, durable=False)


class _PutFailedError(Exception):
    """The store failed while it created a manifest."""

    def __init__(self, error: StorageError) -> None:
        super().__init__(str(error))
        self.error = error
