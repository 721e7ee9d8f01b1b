"""A planned write: tasks write its data files, the driver commits them.

| step | where | action |
| --- | --- | --- |
| `write_plan.begin_write` | driver | reads the table, chooses schema, field ids and file version |
| `WriteJob.writer` | task | writes data files; no version refers to them yet |
| `WriteJob.commit` | driver | commits one manifest with all fragments, by the write strategy |
| `WriteJob.abort`, `abort_all` | driver | deletes the data files of a failed write |

An append to a table that does not exist creates the table. If another client creates the table
first, with the same columns, the rows are appended to it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, ClassVar, Literal

import pyarrow as pa

from lance_spark.errors import (
    CommitConflictError,
    SchemaMismatchError,
    TableExistsError,
    VersionNotFoundError,
)
from lance_spark.file.blobs.fields import input_schema
from lance_spark.file.blobs.writer import BlobOptions
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.v0_1.dictionaries import encode_dictionaries, has_dictionaries
from lance_spark.storage.store import ObjectStore
from lance_spark.table.align import filled_by
from lance_spark.table.bases import Target
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.idempotency import WriteToken
from lance_spark.table.commit.options import DEFAULT_MAX_RETRIES, CommitOptions
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.limits import WriteLimits
from lance_spark.table.fragments.write_progress import FragmentWriteProgress
from lance_spark.table.fragments.writer import (
    TAG_BYTES,
    FragmentWriter,
    common_dictionaries,
    delete_fragments,
    delete_written,
)
from lance_spark.table.manifest.codec import check_identity
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable, open_table, read_latest
from lance_spark.table.operations.data.append import Append, field_paths
from lance_spark.table.operations.data.overwrite import Overwrite
from lance_spark.table.paths import BasePath, TablePaths

Mode = Literal["create", "append", "overwrite"]


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Settings of a table that a write creates or overwrites.

    - `enable_stable_row_ids`: Rows keep their ids when they move. Only for a new table.
    """

    enable_stable_row_ids: bool = False
    config: Mapping[str, str] = field(default_factory=dict)
    table_metadata: Mapping[str, str | None] = field(default_factory=dict)


class WriteStrategy(ABC):
    """How a write changes the table. Can be pickled.

    - `mode`: "create", "append" or "overwrite".
    """

    __slots__ = ()
    mode: ClassVar[Mode] = "append"

    @abstractmethod
    def commit(
        self, job: WriteJob, fragments: Sequence[Fragment], options: CommitOptions
    ) -> Manifest:
        """Commit the fragments; see `WriteJob.commit_manifest`."""

    def rebased(self, job: WriteJob) -> WriteJob | None:
        """Return the write rebased onto the newest version; None if it cannot be rebased.

        Raises StorageError, CorruptTableError.
        """
        # By default, `commit` itself plans the write again after a conflict.
        return None


class _PlainWrite(WriteStrategy):
    """Base class of writes of one operation that is planned once."""

    __slots__ = ()
    #: Whether an overwrite conflicts with each version in between; see `Overwrite`.
    exactly_next: ClassVar[bool] = False

    def plan_operation(
        self, job: WriteJob, fragments: Sequence[Fragment], base: Manifest | None
    ) -> Append | Overwrite:
        """Return the operation of the write; `base` is the version that it was planned on."""
        protos = job.schema.to_protos()
        dictionaries = b""
        if job.file_version == (0, 1) and has_dictionaries(job.schema):
            values = common_dictionaries(job.paths(), fragments, job.schema)
            parts = encode_dictionaries(protos, values, 0)
            dictionaries = b"".join(bytes(part) for part in parts)
        return Overwrite(
            fragments=tuple(fragments),
            schema=tuple(protos),
            schema_metadata=job.schema.metadata,
            config_upsert_values=job.settings.config,
            data_storage_version=job.file_version,
            table_metadata=job.settings.table_metadata,
            dictionaries=dictionaries,
            initial_bases=()
            if job.read_version
            else tuple(path.to_proto() for path in job.base_paths.values()),
            exactly_next=self.exactly_next,
        )

    def commit(
        self, job: WriteJob, fragments: Sequence[Fragment], options: CommitOptions
    ) -> Manifest:
        """Commit the operation; append to the table if another client created it first."""
        store = job.store()
        base = job.base() if job.read_version else None
        operation = self.plan_operation(job, fragments, base)
        transaction = Transaction.new(job.read_version, operation, options.properties)
        try:
            return commit(
                store,
                transaction,
                base,
                max_retries=options.max_retries,
                enable_stable_row_ids=job.settings.enable_stable_row_ids,
                write_token=options.write_token,
            )
        except TableExistsError:
            if self.mode == "create":
                raise
        newest = self._read_same_new_table(job, store)
        append = Append(tuple(fragments), field_paths(job.schema.to_protos()))
        transaction = Transaction.new(newest.version, append, options.properties)
        return commit(
            store,
            transaction,
            newest,
            max_retries=options.max_retries,
            write_token=options.write_token,
        )

    def rebased(self, job: WriteJob) -> WriteJob | None:
        if not job.read_version:
            return None
        newest = read_latest(job.store())
        if not self._can_follow(job, newest):
            return None
        return replace(
            job,
            read_version=newest.version,
            read_identity=newest.identity,
            kept_base=KeptBase(newest),
        )

    def _can_follow(self, job: WriteJob, newest: Manifest) -> bool:
        """Return whether the version is newer, and has the base paths of the write."""
        return job.read_version < newest.version and all(
            newest.base_paths.get(base_id) == base for base_id, base in job.base_paths.items()
        )

    def _read_same_new_table(self, job: WriteJob, store: ObjectStore) -> Manifest:
        """Return the table that another client created, if it has the columns of this write."""
        newest = read_latest(store)
        is_same_table = (
            self.mode == "append"
            and not job.base_paths
            and not (job.file_version == (0, 1) and has_dictionaries(job.schema))
            and _field_keys(newest.schema) == _field_keys(job.schema)
            and newest.data_storage_version == job.file_version
            and newest.flags.stable_row_ids == job.settings.enable_stable_row_ids
        )
        if is_same_table:
            return newest
        raise CommitConflictError(
            f"{store.display}: another client created the table during this {self.mode}; write "
            "again",
            retryable=True,
        )


@dataclass(frozen=True, slots=True)
class CreateTable(_PlainWrite):
    """Create the table."""

    mode = "create"


@dataclass(frozen=True, slots=True)
class OverwriteTable(_PlainWrite):
    """Replace schema and rows, or create the table."""

    mode = "overwrite"


@dataclass(frozen=True, slots=True)
class ReplaceVersion(OverwriteTable):
    """Replace the rows of exactly the version that the write was planned on."""

    exactly_next = True

    def rebased(self, job: WriteJob) -> WriteJob | None:
        """Return None: the rows replace the rows of one version."""
        return None


@dataclass(frozen=True, slots=True)
class AppendRows(_PlainWrite):
    """Append rows, or create the table."""

    def plan_operation(
        self, job: WriteJob, fragments: Sequence[Fragment], base: Manifest | None
    ) -> Append | Overwrite:
        """Return an `Append`, unless the table does not exist."""
        if base is None:
            return _PlainWrite.plan_operation(self, job, fragments, base)
        return Append(tuple(fragments), field_paths(job.schema.to_protos()))

    def _can_follow(self, job: WriteJob, newest: Manifest) -> bool:
        """Return whether the version also stores the columns as the data files have them."""
        return _PlainWrite._can_follow(self, job, newest) and job.fits(newest)


@dataclass(frozen=True, slots=True)
class ReplaceAllRows(OverwriteTable):
    """Replace all rows, but not what another client has changed meanwhile.

    `columns` are `Overwrite.kept_columns`, and `reads_rows` is as of `Overwrite`.
    """

    columns: pa.Schema | None = None
    reads_rows: bool = False

    def plan_operation(
        self, job: WriteJob, fragments: Sequence[Fragment], base: Manifest | None
    ) -> Append | Overwrite:
        """Return an overwrite of a table with these rows or columns."""
        operation = OverwriteTable.plan_operation(self, job, fragments, base)
        assert isinstance(operation, Overwrite)
        return replace(operation, kept_columns=self.columns, reads_rows=self.reads_rows)

    def _can_follow(self, job: WriteJob, newest: Manifest) -> bool:
        if self.reads_rows or not OverwriteTable._can_follow(self, job, newest):
            return False
        columns = newest.schema.to_arrow()
        return self.columns is None or columns.equals(self.columns, check_metadata=True)


STRATEGIES: Mapping[str, WriteStrategy] = {
    strategy.mode: strategy for strategy in (CreateTable(), AppendRows(), OverwriteTable())
}


class KeptBase:
    """The version that a write was planned on, in the process of the plan only.

    A pickled one has the tag of the manifest only: a manifest can be large, and tasks do not need
    it.
    """

    __slots__ = ("manifest", "tag")

    def __init__(self, manifest: Manifest | None = None, tag: str | None = None) -> None:
        self.manifest = manifest
        self.tag = tag if manifest is None else manifest.tag

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptBase, (None, self.tag)


@dataclass(frozen=True, slots=True)
class WriteJob:
    """A planned write. Can be pickled; a pickled write contains no manifest.

    - `uri`: Root of the table.
    - `strategy`: How the write changes the table.
    - `schema`: The columns of the data files, with their field ids. An append may have fewer than
      the table.
    - `file_version`: Version of the data files.
    - `read_version`: The version that the write was planned on; 0 if the table did not exist.
    - `read_identity`: `Manifest.identity` of that version.
    - `kept_base`: That version, if the plan was made in this process.
    - `tag`: Random bytes at the end of the names of the job's data files, by which the files of
      failed tasks are found.
    - `blobs`: How values of blob columns are written.
    - `commit_retries`: Maximum number of times that a commit starts again after another client was
      faster.
    - `base_paths`: Base paths of the table. The commit adds the base paths of a new table to its
      manifest.
    - `targets`: The targets of data files, used in turn: ids of base paths, or None for the table
      itself.
    """

    uri: str = field(repr=False)
    strategy: WriteStrategy
    schema: Schema
    file_version: tuple[int, int]
    read_version: int
    read_identity: tuple[int, str | None] | None = None
    limits: WriteLimits = field(default_factory=WriteLimits)
    settings: TableSettings = field(default_factory=TableSettings)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    tag: bytes = field(default_factory=lambda: os.urandom(TAG_BYTES))
    blobs: BlobOptions = field(default_factory=BlobOptions)
    commit_retries: int = DEFAULT_MAX_RETRIES
    base_paths: Mapping[int, BasePath] = field(default_factory=dict)
    targets: tuple[Target, ...] = (None,)
    kept_base: KeptBase = field(default_factory=KeptBase, repr=False, compare=False)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema to which batches are converted before they are written."""
        return input_schema(self.schema)

    def writer(
        self, first: int = 0, observer: FragmentWriteProgress | None = None
    ) -> FragmentWriter:
        """Return a new writer of data files; several writers may write at the same time.

        - `first`: Index of the first target to use; see `FragmentWriter`.
        """
        return FragmentWriter(
            self.paths(),
            self.schema,
            self.file_version,
            max_rows_per_file=self.limits.max_rows_per_file,
            max_bytes_per_file=self.limits.max_bytes_per_file,
            tag=self.tag,
            blobs=self.blobs,
            targets=self.targets,
            first=first,
            observer=observer,
        )

    def commit(
        self, fragments: Sequence[Fragment], properties: Mapping[str, str] | None = None
    ) -> int:
        """Commit the fragments and return the new version; see `commit_manifest`."""
        return self.commit_manifest(fragments, properties).version

    def commit_manifest(
        self,
        fragments: Sequence[Fragment],
        properties: Mapping[str, str] | None = None,
        write_token: WriteToken | None = None,
    ) -> Manifest:
        """Commit the fragments, and return the new version.

        - `fragments`: The fragments of all writers, in the order of the rows. A commit without
          fragments creates a version, too.
        - `properties`: Properties of the transaction, for example ``__lance_commit_message``.
        - `write_token`: Identifies the write, so that it is committed at most once.

        Raises UnsupportedFeatureError, StorageError. Raises CommitConflictError: another client
        committed a change since the write was planned, and the write cannot be committed after it.
        Raises AlreadyCommittedError: the write of `write_token` has been committed, and the table
        has its rows. `abort` the fragments, unless they are the committed fragments. Raises
        TableExistsError: another client created the table that the write was to create. Raises
        UncertainCommitError: the store failed, and the table may or may not have the rows: do not
        `abort`.
        """
        options = CommitOptions(
            properties or {}, max_retries=self.commit_retries, write_token=write_token
        )
        return self.strategy.commit(self, fragments, options)

    def operation(self, fragments: Sequence[Fragment]) -> Append | Overwrite:
        """Return the operation that commits the fragments of a plain write."""
        assert isinstance(self.strategy, _PlainWrite)
        base = self.base() if self.read_version else None
        return self.strategy.plan_operation(self, fragments, base)

    def with_strategy(self, strategy: WriteStrategy) -> WriteJob:
        """Return a copy of the write with another strategy."""
        return replace(self, strategy=strategy)

    def abort(self, fragments: Sequence[Fragment]) -> None:
        """Delete the data files of fragments that were not committed. Raises StorageError."""
        delete_fragments(self.paths(), fragments)

    def abort_all(self) -> None:
        """Delete all data files of this job, which was not committed.

        Lists the data files of the table. Raises StorageError.
        """
        paths = self.paths()
        for target in self.targets:
            delete_written(paths, target, self.tag)

    def store(self) -> ObjectStore:
        """Return the store of the table's root."""
        return ObjectStore.from_uri(self.uri, self.storage_options)

    def paths(self) -> TablePaths:
        """Return the paths of the table's files."""
        return TablePaths(self.store(), self.base_paths, self.storage_options)

    def base_table(self) -> OpenTable:
        """Return the table at the version that the write was planned on; see `base`."""
        return OpenTable(self.paths(), self.base())

    def base(self) -> Manifest:
        """Return the version that the write was planned on; read it unless it is kept.

        Raises StorageError. Raises CommitConflictError: cleanup removed the version. Raises
        TableNotFoundError: the table was deleted. Raises VersionNotFoundError: the table was
        deleted and created again.
        """
        kept = self.kept_base.manifest
        if kept is not None:
            return kept
        name = self.store().display
        try:
            base = open_table(
                self.uri,
                version=self.read_version,
                storage_options=self.storage_options,
                manifest_tag=self.kept_base.tag,
            ).manifest
        except VersionNotFoundError:
            raise CommitConflictError(
                f"{name}: version {self.read_version}, which this {self.strategy.mode} was planned "
                "on, has been cleaned up; write again",
                retryable=True,
            ) from None
        check_identity(name, base, self.read_identity)
        return base

    def has_targets(self, manifest: Manifest) -> bool:
        """Return whether a version has the base paths that the data files were written to."""
        bases = manifest.base_paths
        return all(
            target is None or bases.get(target) == self.base_paths.get(target)
            for target in self.targets
        )

    def fits(self, manifest: Manifest) -> bool:
        """Return whether a version stores its columns as the data files have them."""
        if manifest.data_storage_version != self.file_version:
            return False
        try:
            expected = filled_by(manifest.schema, self.schema, self.uri)
        except SchemaMismatchError:
            return False
        return all(
            table_field is not None
            and file_field is not None
            and _storage_key(table_field) == _storage_key(file_field)
            and (table_field.nullable or not file_field.nullable)
            for table_field, file_field in zip_longest(expected.walk(), self.schema.walk())
        )


def _storage_key(field: Field) -> tuple[object, ...]:
    return field.id, field.parent_id, field.name, field.logical_type, dict(field.metadata)


def _field_keys(schema: Schema) -> list[tuple[object, ...]]:
    return [(f.id, f.parent_id, f.name, f.logical_type, f.nullable) for f in schema.walk()]
