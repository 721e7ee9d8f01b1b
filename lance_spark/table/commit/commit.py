"""The commit protocol: the atomic creation of the next version of a table.

1. List the versions. Read the transaction of each version after the version that the change was
   planned on, or was last checked against. The operation decides whether it can follow that
   transaction (`operations/`). If it needs a rebase, it counts as planned on the newest version
   afterwards.
2. Write the transaction to `_transactions/`, and build the manifest on the newest version. If the
   table has a MemWAL, its shards are looked at (`mem_wal.guard`). A remote store gets the
   transaction during step 1, and once more after a rebase.
3. Create the manifest, unless the version exists. This is the commit.
4. If another client created the version first, wait for a random time and start again.

A store that fails in step 3 may have created the file. The next attempt finds out: a version with
the uuid of this transaction is the own one; a version of another client in its place means that the
own one will never exist. The same holds if a store answers "exists already", as it may do so to its
own repeated request.

The store cannot refuse a version number that another client committed and cleanup removed. So the
writer checks its version after step 3 (`removal_guard`).
"""

from __future__ import annotations

import datetime
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

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
    error_context,
)
from lance_spark.progress import unreported
from lance_spark.proto import table_pb2
from lance_spark.storage.errors import LockTakenError, is_refusal
from lance_spark.storage.store import ObjectStore
from lance_spark.subjects import MEM_WAL_CATCHUP, MEM_WAL_COMMIT_CHECK, load
from lance_spark.table.commit.options import (
    DEFAULT_MAX_RETRIES,
    Backoff,
    WriteToken,
    find_committed_version,
)
from lance_spark.table.commit.transaction import FOLDER, Transaction, read_transaction
from lance_spark.table.constraints import (
    CheckedConstraints,
    check_columns_stay,
    check_enforced,
    check_no_conditions,
    is_constraint,
)
from lance_spark.table.indexes.sections import MEM_WAL, may_have_mem_wal
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.manifest.codec import (
    check_identity,
    find_manifest,
    read_manifest,
    read_version,
)
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import ManifestLocation, NamingScheme
from lance_spark.table.operations.base import Conflict, Operation, Rebase
from lance_spark.table.operations.metadata import Clone
from lance_spark.table.paths import TablePaths
from lance_spark.table.refs.removal_guard import VersionSlot, check_named, check_slot, check_stays

# --------------------------------------------------------------------------------------------------
# Commits of detached versions: manifests outside of the history, `_versions/d{version}.manifest`.
#
# Their numbers are random, with bit 63 set. A detached version contains the content of the version
# that its change was planned on, which may itself be detached, and the change. It cannot conflict
# with other commits, does not become the newest version, and is not listed: a user must know its
# number to open it. Only tables with names of scheme V2 can have detached versions.

_DETACHED = 1 << 63
_NOTHING_CHECKED: CheckedConstraints = {}


def commit_detached(
    store: ObjectStore,
    transaction: Transaction,
    base: Manifest | None,
    checked_constraints: CheckedConstraints = _NOTHING_CHECKED,
) -> Manifest:
    """Commit a change as a detached version, and return this version.

    - `base`: The version that the change was planned on. It must not be None.
    - `checked_constraints`: As for `commit`.

    Raises StorageError. Raises InvalidInputError: the table does not exist, the change does not fit
    it, or its manifests have names of scheme V1. Raises UnsupportedFeatureError: the table needs a
    feature that this release does not write. Raises VersionNotFoundError: cleanup is removing the
    base version. Raises UncertainCommitError: the store failed, and the version may or may not
    exist.
    """
    if base is None:
        raise InvalidInputError(
            f"{store.display}: a detached version needs an existing table; create the table first"
        )
    operation = transaction.operation
    base.check_writable(store.display)
    listing = versions.list_for_commit(
        store, partial(versions.list_manifests, store), complete=True
    )
    if listing.scheme(store) is NamingScheme.V1:
        raise InvalidInputError(
            f"{store.display}: its manifests have names of scheme V1, which does not have detached "
            "versions; call Dataset.migrate_manifest_paths_v2 first"
        )
    older_versions: list[Manifest] = []

    def read_older(version: int) -> Manifest:
        older_versions.append(read_manifest(store, versions.find(store, version)))
        return older_versions[-1]

    builder = ManifestBuilder(
        base,
        read_version=read_older,
        paths=TablePaths(store, base.base_paths, store.options),
    )
    builder.proto.version = _DETACHED | secrets.randbits(63)
    operation.apply(builder)
    _check_constraints(store, operation, base, builder, checked_constraints, base)
    message = transaction.encode()
    path = f"{FOLDER}/{transaction.file_name}"
    writes_file = base.flags.writes_transaction_files
    location = versions.detached_location(builder.version)
    file_name = transaction.file_name if writes_file else ""
    manifest, data = builder.encode(store.name(location.path), message, file_name)
    if writes_file:
        store.write_bytes(path, message, durable=False)
    _create(store, manifest.version, location.path, data, path)
    for earlier in [base, *older_versions]:
        # Cleanup keeps the files of detached versions that it sees. If it started earlier and is
        # removing this manifest, the detached version is deleted again.
        check_named(store, earlier, lambda: store.delete([location.path, path]))
    return manifest


def _check_constraints(
    store: ObjectStore,
    operation: Operation,
    newest: Manifest | None,
    builder: ManifestBuilder,
    checked: CheckedConstraints,
    planned: Manifest | None,
) -> None:
    """Raise an error if an operation writes unchecked rows, or drops a column of a constraint."""
    config = builder.proto.config
    if not any(map(is_constraint, config)):
        return
    before = table_pb2.Manifest() if newest is None else newest.message
    check_columns_stay(config, before.fields, builder.proto.fields, store.display)
    if any(index.name == MEM_WAL for index in operation.new_indexes):
        check_no_conditions(config, store.display)
    check_enforced(
        config,
        before.fields or builder.proto.fields,
        operation.written_fields(before),
        checked,
        store.display,
        None if planned is None else planned.message.config,
    )


def _create(
    store: ObjectStore, version: int, path: str, data: bytes, transaction_path: str
) -> None:
    """Create the manifest; delete the transaction file if the manifest is certainly not created."""
    try:
        created = store.put_if_absent(path, data)
    except StorageError as error:
        if is_refusal(error):
            with suppress(StorageError):
                store.delete([transaction_path])
            raise
        raise _uncertain(store, version, error) from error
    try:
        # Numbers are random, so an existing file with this content is the own one: the answer to
        # the first request was lost, and the request was repeated.
        created = created or store.read_bytes(path) == data
    except LanceError as error:
        raise _uncertain(store, version, error) from error
    if not created:
        with suppress(StorageError):
            store.delete([transaction_path])
        raise StorageError(
            f"{store.display}: the detached version {version} exists already; commit again"
        )


def _uncertain(store: ObjectStore, version: int, error: LanceError) -> UncertainCommitError:
    return UncertainCommitError(
        f"{store.display}: the store failed while detached version {version} was written "
        f"({error}); check whether the version exists"
    )


# --------------------------------------------------------------------------------------------------
# The commit protocol: the atomic creation of the next version of a table.

_MAX_STORE_FAILURES = 3
#: In remote stores, a version is not read again for this number of seconds.
_FRESH_SECONDS = 10.0
_AUTO_CLEANUP = "lance.auto_cleanup.interval"


def commit(
    store: ObjectStore,
    transaction: Transaction,
    base: Manifest | None,
    *,
    max_retries: int = DEFAULT_MAX_RETRIES,
    enable_stable_row_ids: bool = False,
    detached: bool = False,
    write_token: WriteToken | None = None,
    timeout: datetime.timedelta | None = None,
    checked_constraints: CheckedConstraints = _NOTHING_CHECKED,
) -> Manifest:
    """Commit a change as the newest version, or as a detached version; return the new version.

    - `base`: The version that the change was planned on; None to create the table.
    - `max_retries`: The maximum number of new attempts after other clients committed first.
    - `enable_stable_row_ids`: Whether a new table gets stable row ids.
    - `detached`: Whether to commit a detached version; see `commit_detached`.
    - `write_token`: Refuses the change if it was committed before. The transaction gets its
      properties.
    - `timeout`: Time after which no other attempt starts; no limit by default.
    - `checked_constraints`: The conditions that Spark has checked the new rows and values against,
      by the names of the constraints. Not part of the transaction.

    Raises CommitConflictError: another client committed a change that this change cannot follow, or
    `max_retries` attempts were not enough. Raises AlreadyCommittedError: the change of
    `write_token` was committed before. Raises TableExistsError: the table must be created, but
    exists. Raises UnsupportedFeatureError: the table needs a feature that this release does not
    write, or has a constraint that the rows were not checked against. Raises InvalidInputError: the
    change was planned on a detached version, or does not fit the table. Raises
    UncertainCommitError: the store failed, and the change may or may not be committed. Raises
    StorageError: the store failed, and the change is not committed.
    """
    with error_context(store.display):
        if detached:
            if write_token is not None:
                raise InvalidInputError(
                    f"{store.display}: a detached version is not in the history, so an idempotent "
                    "change cannot be detached"
                )
            return commit_detached(store, transaction, base, checked_constraints)
        if base is None:
            store.check_new_table()
        elif versions.is_detached(base.version):
            raise InvalidInputError(
                f"{store.display}: version {base.version} is detached: only detached versions can "
                "follow it"
            )
        if write_token is not None:
            transaction = replace(
                transaction, properties={**transaction.properties, **write_token.properties()}
            )
            if base is not None:
                _check_not_committed(store, base, write_token)
        attempts = _Attempts(
            store, transaction, base, enable_stable_row_ids, write_token, checked_constraints
        )
        try:
            manifest = attempts.run(max_retries, timeout)
        except LanceError as error:
            if attempts.uncertain is None:
                attempts.clean_up()
                raise
            raise UncertainCommitError(
                f"{store.display}: the store failed while version {attempts.tried} was committed "
                f"({attempts.uncertain}); check whether a version with the transaction "
                f"{transaction.uuid} appears before writing again"
            ) from error
        if base is not None and _AUTO_CLEANUP in manifest.message.config:
            from lance_spark.table.cleanup.automatic import clean_up_after_commit

            # An error of a caller's callback must not hide the commit.
            with unreported():
                clean_up_after_commit(store, manifest)
        return manifest


def _check_not_committed(store: ObjectStore, manifest: Manifest, write_token: WriteToken) -> None:
    version = find_committed_version(store, manifest, write_token)
    if version is not None:
        raise write_token.error(store, version)


class _Attempts:
    """The attempts of one commit.

    - `tried`: The version that the last attempt tried to create; 0 before the first.
    - `uncertain`: The error that left open whether this commit created that version.
    """

    def __init__(
        self,
        store: ObjectStore,
        transaction: Transaction,
        base: Manifest | None,
        enable_stable_row_ids: bool,
        write_token: WriteToken | None,
        checked_constraints: CheckedConstraints,
    ) -> None:
        self._write_token = write_token
        self._checked_constraints = checked_constraints
        self._store = store
        self._transaction = transaction
        self._base = self._planned = base
        self._newest = base
        self._committed: list[Operation] = []
        self._needs_rebase = False
        self._enable_stable_row_ids = enable_stable_row_ids
        self._encoded: tuple[Transaction, bytes] | None = None
        self._transaction_file: str | None = None
        self._written: list[str] = []
        self.tried = 0
        self.uncertain: StorageError | None = None

    def run(self, max_retries: int, timeout: datetime.timedelta | None = None) -> Manifest:
        """Try to commit until an attempt succeeds. Raises as `commit`."""
        failures = tries = 0
        check_least("max_retries", max_retries, 0)
        backoff = Backoff()
        end = None if timeout is None else time.monotonic() + timeout.total_seconds()
        while tries <= max_retries and not (tries and end and time.monotonic() > end):
            tries += 1
            listing = versions.list_for_commit(
                self._store,
                self._list_manifests,
                self._early_write() if tries == 1 else None,
                complete=self._newest is None,
            )
            self._check_identity(listing.manifests)
            committed = self._catch_up(listing.manifests)
            if committed is not None:
                return self._finish(committed)
            try:
                manifest = self._attempt(listing.scheme(self._store))
            except _PutFailedError as failed:
                failures += 1
                if failures > _MAX_STORE_FAILURES:
                    raise failed.error from None
                manifest = None
            if manifest is not None:
                self._finish(manifest)
                versions.write_hint(self._store, manifest.version)
                return manifest
            backoff.wait()
        committed = self._catch_up(self._list_manifests())
        if committed is not None:
            return self._finish(committed)
        raise CommitConflictError(
            f"{self._store.display}: other writers were faster {tries} times, last with "
            f"version {self.tried}; commit again, or allow more retries",
            retryable=True,
        )

    def _finish(self, manifest: Manifest) -> Manifest:
        """Check the number of the new version, and delete the files of failed attempts."""
        self._check_slot(manifest)
        used = frozenset(self._transaction.operation.deletion_files)
        self._delete([path for path in self._written if path not in used])
        return manifest

    def _check_slot(self, manifest: Manifest) -> None:
        try:
            slot = check_slot(self._store, manifest.version)
        except StorageError as error:
            self.uncertain = error
            raise
        if slot is VersionSlot.NEW:
            return
        if slot is VersionSlot.REUSED and self._transaction_file is not None:
            # Without this file, no client restores the version, or gives it a tag or branch
            # (`refs.removal_guard`): files of the version that it is built on may be missing.
            self._delete([self._transaction_file])
        self.uncertain = StorageError(
            f"cleanup may have removed an earlier version {manifest.version}"
        )
        raise self.uncertain

    def clean_up(self) -> None:
        """Delete the files of all attempts, after the commit failed."""
        written = list(self._written)
        if self._transaction_file is not None:
            written.append(self._transaction_file)
        self._delete(written)

    def _delete(self, paths: list[str]) -> None:
        # An error here must not make a successful commit fail. Cleanup removes the remaining files.
        with suppress(LanceError):
            self._store.delete(paths)

    def _early_write(self) -> Callable[[], None] | None:
        """Return the write of the transaction, which a remote store does while it lists versions.

        If the listing shows that the transaction needs a rebase, `_write_transaction` replaces it.
        """
        newest = self._newest
        if newest is not None:
            newest.check_writable(self._store.display)
        if self._store.is_local or not _writes_file(newest):
            return None
        return self._write_transaction

    def _list_manifests(self) -> list[ManifestLocation]:
        if self._newest is None:
            return versions.list_manifests(self._store)
        return versions.list_since(self._store, self._newest.version)

    def _check_identity(self, manifests: list[ManifestLocation]) -> None:
        """Check that the base version is stored unchanged.

        The table may have been deleted and created again, with a version of the same number.
        """
        newest = self._newest
        if newest is None:
            return
        limit = 0.0 if self._store.is_local else _FRESH_SECONDS
        is_fresh = time.monotonic() - newest.read_at < limit
        for location in manifests:
            if location.version != newest.version:
                continue
            has_tags = None not in (location.tag, newest.tag)
            if location.tag == newest.tag if has_tags else is_fresh:
                continue
            stored = find_manifest(self._store, location)
            if stored is not None:
                check_identity(self._store.display, stored, newest.identity)
                newest.read_at = stored.read_at

    def _catch_up(self, manifests: list[ManifestLocation]) -> Manifest | None:
        """Check all versions up to the newest one, which becomes the base of the next attempt.

        Return the version with this transaction if an earlier attempt created it, otherwise None.
        """
        newest = self._newest
        if newest is None:
            return self._find_created(manifests)
        for location in manifests:
            if location.version <= newest.version:
                continue
            if location.version != newest.version + 1:
                raise self._removed_error(newest.version + 1)
            try:
                manifest = read_manifest(self._store, location)
            except MissingFileError:
                raise self._removed_error(location.version) from None
            committed = read_transaction(self._store, manifest)
            if committed is not None and committed.uuid == self._transaction.uuid:
                self.uncertain = None
                return manifest
            if location.version == self.tried:
                self._rule_out(location.version)
            if committed is not None and isinstance(committed.operation, Clone):
                # Two clients create a table at the same path. One of them will fail and undo it.
                raise CommitConflictError(
                    f"{self._store.display}: version {manifest.version} is the first version of a "
                    "clone that another client is creating at the same path",
                    retryable=True,
                )
            if self._write_token is not None and self._write_token.is_committed_by(committed):
                raise self._write_token.error(self._store, manifest.version)
            self._check_conflict(manifest, committed.operation if committed else None)
            self._check_bases(manifest)
            newest = manifest
        if not manifests or manifests[-1].version < newest.version:
            raise TableNotFoundError(
                f"{self._store.display}: version {newest.version}, which the change was planned "
                "on, was not found; the table was deleted"
            )
        self._newest = newest
        return None

    def _find_created(self, manifests: list[ManifestLocation]) -> Manifest | None:
        """Return the first version if an earlier attempt of this commit created the table."""
        if not manifests:
            return None
        first = read_manifest(self._store, manifests[0])
        committed = read_transaction(self._store, first)
        if committed is not None and committed.uuid == self._transaction.uuid:
            self.uncertain = None
            return first
        if first.version <= self.tried:
            self._rule_out(first.version)
        if self._write_token is not None:
            _check_not_committed(
                self._store, read_manifest(self._store, manifests[-1]), self._write_token
            )
        raise TableExistsError(
            f"{self._store.display}: a table exists at this path already, with "
            f"{versions.describe(manifests)}; append to it, overwrite it, or choose another path"
        )

    def _rule_out(self, version: int) -> None:
        """Clear `uncertain`, because another client created the version that was tried."""
        if self.uncertain is None:
            return
        if check_slot(self._store, version) is not VersionSlot.NEW:
            # Cleanup may have removed the version of this commit.
            raise self.uncertain
        self.uncertain = None

    def _check_conflict(self, manifest: Manifest, committed: Operation | None) -> None:
        operation = self._transaction.operation
        conflict = Conflict.RETRYABLE if committed is None else operation.conflict(committed)
        if committed is not None and conflict in (Conflict.COMPATIBLE, Conflict.REBASE):
            self._committed.append(committed)
            self._needs_rebase = self._needs_rebase or conflict is Conflict.REBASE
            return
        committed_name = "transaction not recorded" if committed is None else committed.name
        retryable = conflict is Conflict.RETRYABLE
        if retryable:
            problem = "was overtaken by"
            advice = "plan it again on the newest version"
            committed_name = committed_name or "unknown operation"
        else:
            problem = "is incompatible with"
            advice = "check what the other change did"
        raise CommitConflictError(
            f"{self._store.display}: this {operation.name} {problem} version {manifest.version} "
            f"({committed_name}), committed after version {self._transaction.read_version}, "
            f"which it was planned on; {advice}",
            retryable=retryable,
        )

    def _check_bases(self, manifest: Manifest) -> None:
        """Refuse a changed base path: this commit may have files below the old path."""
        if self._base is None or not self._base.base_paths:
            return
        new_bases = manifest.base_paths
        for number, base in self._base.base_paths.items():
            new = new_bases.get(number)
            if new is None or (new.path, new.is_dataset_root) != (base.path, base.is_dataset_root):
                raise CommitConflictError(
                    f"{self._store.display}: version {manifest.version} changed the base path "
                    f"{number} after this {self._transaction.operation.name} was planned; "
                    "plan it again on the newest version",
                    retryable=True,
                )

    def _removed_error(self, version: int) -> CommitConflictError:
        return CommitConflictError(
            f"{self._store.display}: cleanup has removed version {version}, which was committed "
            f"after this {self._transaction.operation.name} was planned, so a conflict cannot be "
            "excluded; plan it again on the newest version",
            retryable=True,
        )

    def _attempt(self, scheme: versions.NamingScheme) -> Manifest | None:
        """Create the next version; return None if another client has created it."""
        store, newest = self._store, self._newest
        if self._needs_rebase:
            self._rebase()
        operation = self._transaction.operation
        if newest is not None:
            newest.check_writable(store.display)
        older_versions: list[Manifest] = []

        def read_older(version: int) -> Manifest:
            older_versions.append(read_version(store, version))
            return older_versions[-1]

        builder = ManifestBuilder(
            newest,
            enable_stable_row_ids=self._enable_stable_row_ids,
            read_version=read_older,
            planned_on=self._transaction.read_version,
            paths=None if newest is None else self._paths(newest),
        )
        operation.apply(builder)
        _check_constraints(
            store, operation, newest, builder, self._checked_constraints, self._planned
        )
        sections = (None if newest is None else newest.index_section, builder.index_section)
        if any(map(may_have_mem_wal, sections)):
            if self._planned is not None and operation.name != "restore":
                load(MEM_WAL_CATCHUP)(builder, self._planned)
            load(MEM_WAL_COMMIT_CHECK)(store, builder, operation)
        writes_file = _writes_file(newest)
        location = scheme.locate(builder.version)
        file_name = self._transaction.file_name if writes_file else ""
        manifest, data = builder.encode(store.name(location.path), self._message(), file_name)
        if writes_file:
            self._write_transaction()
        for older in older_versions:
            # Cleanup either sees the transaction file written above, and keeps this version, or has
            # removed the transaction file of this version, which is checked here.
            check_stays(store, older)
        self.tried = location.version
        try:
            created = versions.create_manifest(store, location, data)
        except LockTakenError:
            # What an earlier attempt left open stays open.
            return None
        except StorageError as error:
            if is_refusal(error):
                raise
            self.uncertain = error
            raise _PutFailedError(error) from error
        if not created:
            # A request to an object store may have been repeated, so the file may be the own one.
            if not store.is_local:
                self.uncertain = StorageError(f"{store.name(location.path)} exists already")
            return None
        self.uncertain = None
        return manifest

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

    def _message(self) -> bytes:
        """Return the encoded transaction."""
        encoded = self._encoded
        if encoded is None or encoded[0] is not self._transaction:
            encoded = self._encoded = self._transaction, self._transaction.encode()
        return encoded[1]

    def _write_transaction(self) -> None:
        path = f"{FOLDER}/{self._transaction.file_name}"
        if path == self._transaction_file:
            return
        if self._transaction_file is not None:
            self._delete([self._transaction_file])
        # Recorded first: the write may succeed although its answer is lost.
        self._transaction_file = path
        # Not durable: the manifest has a copy, so a crash may lose the file.
        self._store.write_bytes(path, self._message(), durable=False)


def _writes_file(newest: Manifest | None) -> bool:
    """Return whether the version after this one has a transaction file."""
    return newest is None or newest.flags.writes_transaction_files


class _PutFailedError(Exception):
    """The store failed while it created a manifest."""

    def __init__(self, error: StorageError) -> None:
        super().__init__(str(error))
        self.error = error
