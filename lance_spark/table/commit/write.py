"""Writes: planned on the driver, data files written by tasks, committed by the driver."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import pyarrow as pa

from lance_spark.errors import (
    AlreadyCommittedError,
    CommitConflictError,
    InvalidInputError,
    InvalidOptionError,
    LanceError,
    SchemaMismatchError,
    StorageError,
    TableExistsError,
    UncertainCommitError,
    UnsupportedFeatureError,
    VersionNotFoundError,
    error_context,
)
from lance_spark.file.blobs.fields import for_version, input_schema, new_schema
from lance_spark.file.blobs.writer import BlobOptions
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.rules import check_fields
from lance_spark.file.schema.schema import Schema
from lance_spark.file.v0_1.dictionaries import encode_dictionaries, has_dictionaries
from lance_spark.file.writer import check_types
from lance_spark.storage.options import check_base_params
from lance_spark.storage.parallel import call_all
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import parse_uri
from lance_spark.subjects import MEM_WAL_SHARDS_CHECK, load
from lance_spark.table.align import filled_by
from lance_spark.table.bases import BaseLike, Target, folders, new_bases, same_bases, targets
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.options import (
    DEFAULT_MAX_RETRIES,
    CommitOptions,
    WriteToken,
    replan_on_conflict,
)
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.constraints import CheckedConstraints, check_enforced
from lance_spark.table.fragments import files
from lance_spark.table.fragments.fragment import Fragment, check_unique
from lance_spark.table.fragments.limits import WriteLimits
from lance_spark.table.fragments.writer import (
    TAG_BYTES,
    FragmentWriteProgress,
    FragmentWriter,
    common_dictionaries,
    delete_fragments,
    delete_written,
)
from lance_spark.table.indexes.sections import has_mem_wal, read_section
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import check_identity, read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable, branch_of, check_branch_bases, open_table, read_latest
from lance_spark.table.operations.append import Append, Overwrite, field_paths
from lance_spark.table.paths import DATA, BasePath, TablePaths
from lance_spark.table.placement import check_targets
from lance_spark.table.refs import names as ref_names
from lance_spark.table.rows.ids import check_names

# --------------------------------------------------------------------------------------------------
# A planned write: tasks write its data files, the driver commits them.
#
# | step | where | action |
# | --- | --- | --- |
# | `write_plan.begin_write` | driver | reads the table, chooses schema, field ids and file version
#     |
# | `WriteJob.writer` | task | writes data files; no version refers to them yet |
# | `WriteJob.commit` | driver | commits one manifest with all fragments, by the write strategy |
# | `WriteJob.abort`, `abort_all` | driver | deletes the data files of a failed write |
#
# An append to a table that does not exist creates the table. If another client creates the table
# first, with the same columns, the rows are appended to it.

Mode = Literal["create", "append", "overwrite"]


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Settings of a table that a write creates or overwrites.

    - `enable_stable_row_ids`: Rows keep their ids when they move. Only for a new table.
    - `drops_constraints`: Whether a table that is overwritten loses its constraints.
    """

    enable_stable_row_ids: bool = False
    config: Mapping[str, str] = field(default_factory=dict)
    table_metadata: Mapping[str, str | None] = field(default_factory=dict)
    drops_constraints: bool = False


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
            drops_constraints=job.settings.drops_constraints,
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
                checked_constraints=options.checked_constraints,
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
            checked_constraints=options.checked_constraints,
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
    - `checked_constraints`: The conditions that Spark checks the rows against, by the names of the
      constraints.
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
    checked_constraints: CheckedConstraints = field(default_factory=dict)
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
            properties or {},
            max_retries=self.commit_retries,
            write_token=write_token,
            checked_constraints=self.checked_constraints,
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


# --------------------------------------------------------------------------------------------------
# The plan of a write: checks and choices of the driver before tasks write data files.

#: Receives a version, the schema of appended data, and the table's name; returns the schema of the
#: data files.
ChooseSchema = Callable[[Manifest, Schema, str], Schema]
_NO_LIMITS = WriteLimits()
_NO_SETTINGS = TableSettings()


@dataclass(frozen=True, slots=True)
class BaseTargets:
    """Base paths of a write.

    - `initial`: Base paths of a new table. An existing table must already have them.
    - `names`: Names or paths of the base paths for new data files, used in turn.
    - `all_bases`: True: new data files go to the table itself and all base paths, in turn; False:
      to all base paths, in turn.
    """

    initial: Sequence[BaseLike] = ()
    names: Sequence[str] | None = None
    all_bases: bool | None = None


_NO_BASES = BaseTargets()


class OpenForWrite(NamedTuple):
    """The branch that a write goes to, and its newest version; None if the table does not exist."""

    store: ObjectStore
    base: Manifest | None


def begin_write(
    uri: str,
    schema: pa.Schema,
    *,
    mode: Mode = "append",
    data_storage_version: str | None = None,
    limits: WriteLimits = _NO_LIMITS,
    settings: TableSettings = _NO_SETTINGS,
    storage_options: Mapping[str, Any] | None = None,
    blobs: BlobOptions | None = None,
    commit_retries: int | None = None,
    branch: str | None = None,
    bases: BaseTargets = _NO_BASES,
    choose_schema: ChooseSchema | None = None,
    opened: OpenForWrite | None = None,
    checked_constraints: CheckedConstraints | None = None,
) -> WriteJob:
    """Plan a write.

    - `uri`: Root of the table, or of one of its branches: a path or a URI.
    - `schema`: Schema of the data.
    - `mode`: "create" creates a table, "append" appends rows, "overwrite" replaces schema and rows;
      the latter two create the table if it does not exist.
    - `data_storage_version`: File version of the data files: "2.0", "2.1", "2.2" or "stable", or
      "0.1" or "legacy". By default that of the table, or "stable" for a new table.
    - `storage_options`: Credentials, endpoint and other settings of the store, by the names that
      other Lance clients use; see docs/reference/stores.md.
    - `blobs`: How values of blob columns are written.
    - `commit_retries`: Maximum number of times that the commit starts again after another client
      was faster; 20 by default.
    - `branch`: The branch to write to, which must exist; ``main`` for the main branch. By default
      the branch whose root `uri` is.
    - `choose_schema`: Chooses the schema of appended data files; by default the table's fields that
      the data has.
    - `opened`: What `open_for_write` has just returned for an append with these options.
    - `checked_constraints`: The conditions that Spark checks the rows against, by the names of the
      constraints.

    Raises CorruptTableError, StorageError. Raises TableExistsError: the mode is "create", and the
    table exists. Raises SchemaMismatchError: appended data does not fit the table. Raises
    InvalidOptionError: the value of an option is not valid, or the option cannot be used on this
    table. Raises UnsupportedFeatureError: the table needs a feature that this release does not
    have, or this release does not write files of that version, or the rows are not checked against
    a constraint of the table. Raises InvalidInputError,
    UnsupportedTypeError: the schema cannot be stored.
    """
    with error_context(parse_uri(uri).display):
        retries = DEFAULT_MAX_RETRIES if commit_retries is None else commit_retries
        _check_options(mode, limits, retries)
        version = None
        if data_storage_version is not None:
            version = files.parse_version(data_storage_version)
        data = Schema.from_arrow(schema)
        if not data.fields:
            raise InvalidInputError(
                f"{parse_uri(uri).display}: data without columns cannot be written; add a column"
            )
        store, base = opened or open_for_write(uri, storage_options, branch, mode)
        base_paths, chosen = _choose_targets(store, base, bases, storage_options or {})
        job = WriteJob(
            uri=store.uri,
            strategy=STRATEGIES[mode],
            schema=data,
            file_version=version or files.DEFAULT,
            read_version=base.version if base else 0,
            read_identity=base.identity if base else None,
            kept_base=KeptBase(base),
            limits=limits,
            settings=settings,
            storage_options=dict(storage_options or {}),
            blobs=replace(blobs or BlobOptions(), bases=folders(base_paths)),
            commit_retries=retries,
            base_paths=base_paths,
            targets=chosen,
            checked_constraints=checked_constraints or {},
        )
        # An overwrite heals a table whose segments of an index have different fields.
        if base is not None and mode == "overwrite" and has_mem_wal(read_section(base)):
            load(MEM_WAL_SHARDS_CHECK)(store, base, "the table cannot be overwritten")
        if base is not None:
            job = _planned_on(job, base, version, store, choose_schema)
        if base is None or mode == "overwrite":
            check_names(schema.names)
            first = base.first_new_field_id if base is not None else 0
            if first or for_version(schema, job.file_version) is not schema:
                data = new_schema(schema, job.file_version, first)
            check_fields(data.to_protos())
            job = replace(job, schema=data)
        if job.file_version not in files.WRITABLE:
            raise UnsupportedFeatureError(
                f"{store.display}: this release writes data files of version "
                f"{files.writable()}, not {files.text(job.file_version)}; "
                f"{_supported_choice(job, base)}"
            )
        check_types(job.schema, job.file_version)
        return job


def open_for_write(
    uri: str,
    storage_options: Mapping[str, Any] | None = None,
    branch: str | None = None,
    mode: Mode = "append",
) -> OpenForWrite:
    """Return the version that a write is planned on; see `begin_write`.

    Raises TableExistsError, UnsupportedFeatureError, CorruptTableError, StorageError.
    """
    store = ObjectStore.from_uri(uri, storage_options)
    # A new table has only the main branch.
    if branch is not None and (branch != ref_names.MAIN or versions.newest(store) is not None):
        store = branch_of(store, branch)
    store.check_put_if_absent()
    is_new = mode == "create"
    find = partial(
        versions.list_for_commit, store, partial(versions.list_newest, store), complete=is_new
    )
    has_copy = partial(store.exists, versions.LATEST)
    if is_new:
        # Most likely there is no manifest, so that the copy of one is looked for, too.
        listing, is_old = call_all([find, has_copy], local=store.is_local)
    else:
        listing = find()
        is_old = not listing.manifests and has_copy()
    manifests = listing.manifests
    if not manifests:
        if is_old:
            raise versions.not_a_table(store)
        store.check_new_table()
        return OpenForWrite(store, None)
    if is_new:
        raise TableExistsError(
            f"{store.display}: the table already exists, with "
            f"{versions.describe(versions.list_manifests(store))}; append to it, overwrite it, or "
            "choose another path"
        )
    listing.scheme(store)
    return OpenForWrite(store, read_latest(store, manifests[-1]))


def _choose_targets(
    store: ObjectStore,
    base: Manifest | None,
    bases: BaseTargets,
    storage_options: Mapping[str, Any],
) -> tuple[Mapping[int, BasePath], tuple[Target, ...]]:
    """Return the base paths of the table, and the targets of new data files."""
    base_paths: Mapping[int, BasePath] = {path.id: path for path in new_bases(bases.initial)}
    if base is not None:
        check_branch_bases(store, base)
        if not same_bases(bases.initial, base.base_paths.values()):
            raise InvalidOptionError(
                f"{store.display}: initial_bases are for a new table, and this table exists and "
                "does not have all of them; add base paths to it by Dataset.add_bases or "
                "LanceTable.add_bases"
            )
        base_paths = dict(base.base_paths)
    check_base_params(storage_options, [path.path for path in base_paths.values()], store.display)
    chosen = targets(base_paths, bases.names, bases.all_bases, store)
    paths = TablePaths(store, base_paths, storage_options)
    check_targets(paths, base_paths, chosen)
    return base_paths, chosen


def _planned_on(
    job: WriteJob,
    base: Manifest,
    version: tuple[int, int] | None,
    store: ObjectStore,
    choose_schema: ChooseSchema | None,
) -> WriteJob:
    """Return a write with the schema and file version for an existing table, after checks."""
    base.check_writable(store.display)
    if not job.settings.drops_constraints:
        # Refused before files are written; the commit checks the newest version.
        message, checked = base.message, job.checked_constraints
        check_enforced(message.config, message.fields, None, checked, store.display)
    if job.settings.enable_stable_row_ids and not base.flags.stable_row_ids:
        raise InvalidOptionError(
            f"{store.display}: stable row ids can be enabled only for a new table, and this table "
            "exists"
        )
    if job.strategy.mode == "overwrite":
        return replace(job, file_version=version or base.data_storage_version)
    check_unique(base.message.fragments, base.name)
    if version is not None and version != base.data_storage_version:
        raise InvalidOptionError(
            f"{store.display}: its data files have version "
            f"{files.text(base.data_storage_version)}, and an append must use it, too; "
            f"do not set data storage version {files.text(version)}, or overwrite the table"
        )
    if job.settings.config or job.settings.table_metadata:
        raise InvalidOptionError(
            f"{store.display}: an append cannot set configuration and metadata; set them when the "
            "table is created or overwritten"
        )
    schema = (choose_schema or _table_fields_of)(base, job.schema, store.display)
    if base.data_storage_version == (0, 1):
        _check_complete(schema, base.schema, store.display)
    return replace(job, schema=schema, file_version=base.data_storage_version)


def _table_fields_of(base: Manifest, data: Schema, name: str) -> Schema:
    return filled_by(base.schema, data, name)


def _check_complete(schema: Schema, table: Schema, name: str) -> None:
    """Raise an error if the data lacks columns of the table, or has other columns."""
    data_names, table_names = ({node.id: node.name for node in s.walk()} for s in (schema, table))
    names = {**data_names, **table_names}
    for field_id in data_names.keys() ^ table_names.keys():
        raise SchemaMismatchError(
            f"{name}: column {names[field_id]!r} is not in "
            f"{'the data' if field_id in table_names else 'the table'}, and data files of version "
            "0.1 must have all columns of a table; write all columns, or overwrite the table with "
            "data storage version 2.2"
        )


def _check_options(mode: str, limits: WriteLimits, commit_retries: int) -> None:
    modes = get_args(Mode)
    if mode not in modes:
        raise InvalidOptionError(f"mode must be one of {', '.join(map(repr, modes))}, not {mode!r}")
    for name in ("max_rows_per_file", "max_bytes_per_file"):
        if getattr(limits, name) < 1:
            raise InvalidOptionError(f"{name} must be at least 1, not {getattr(limits, name)}")
    if commit_retries < 0:
        raise InvalidOptionError(f"commit_retries must be at least 0, not {commit_retries}")


def _supported_choice(job: WriteJob, base: Manifest | None) -> str:
    if base is not None and job.strategy.mode == "append":
        return "overwrite the table with data storage version 2.2, or append with pylance"
    return "set data storage version 2.2"


# --------------------------------------------------------------------------------------------------
# Commits of writes: rebased after a conflict, and without leftover data files after a failure.
#
# | a write that conflicts with | is committed on top of it if the newest version |
# | --- | --- |
# | an append, with an overwrite or a restore | stores the columns as the data files have them |
# | an overwrite, with an overwrite | (no further condition) |
#
# In both cases the newest version must still have the base paths of the write.
#
# Both are conflicts in the matrix of the format (table/commit/transaction.md), which does not know
# the intent of the user. A user of Spark expects a write to apply to the table as it is at the end
# of the write. Writing the rows again would produce the same files.


def commit_or_clean_up(
    job: WriteJob,
    fragments: Sequence[Fragment],
    properties: Mapping[str, str] | None = None,
    write_token: WriteToken | None = None,
) -> OpenTable:
    """Commit a write and return the new version.

    After a failure, the files of the write are deleted unless a version may refer to them. Raises
    LanceError: Errors of `WriteJob.commit_manifest`.
    """
    with _clean_up_on_failure(job, fragments):
        manifest = job.commit_manifest(fragments, properties=properties, write_token=write_token)
    return OpenTable(TablePaths(job.store(), manifest.base_paths, job.storage_options), manifest)


def commit_on_newest(
    job: WriteJob,
    fragments: Sequence[Fragment],
    properties: Mapping[str, str] | None = None,
    write_token: WriteToken | None = None,
) -> Manifest:
    """Commit what tasks wrote, and rebase it onto the newest version after a conflict.

    After a failure, the files of the write are deleted unless a version may refer to them.

    - `job`: Its `commit_retries` limit the retries after conflicts, too.
    - `write_token`: See `WriteJob.commit_manifest`.

    Raises LanceError: errors of `WriteJob.commit_manifest`.
    """

    def attempt(current: WriteJob) -> Manifest:
        return current.commit_manifest(fragments, properties=properties, write_token=write_token)

    def replan(current: WriteJob, _: CommitConflictError) -> WriteJob | None:
        with suppress(LanceError):
            return current.strategy.rebased(current)
        return None

    with _clean_up_on_failure(job, fragments):
        check_stored(job.paths(), fragments, job.read_version, job.read_identity)
        return replan_on_conflict(attempt, job, replan, job.commit_retries)


def check_stored(
    paths: TablePaths,
    fragments: Iterable[Fragment],
    version: int,
    identity: tuple[int, str | None] | None,
) -> None:
    """Check that files which other processes wrote to a local folder are in it.

    A process on another machine writes to a folder of that machine.

    - `version`, `identity`: `read_version` and `read_identity` of a `WriteJob`.

    Raises StorageError: a file is not there. Raises VersionNotFoundError, TableNotFoundError: the
    table was deleted meanwhile, and the files with it.
    """
    for fragment in fragments:
        for file in fragment.files:
            store, path = paths.locate(file.base_id, DATA, file.path)
            if not store.is_local or store.exists(path):
                continue
            if version:
                stored = read_version(paths.store, version)
                check_identity(paths.store.display, stored, identity)
            raise StorageError(
                f"{store.name(path)}: a task has written this file, and it is not on this "
                "machine: the task wrote to a disk of its own machine; choose a folder or a "
                "store that all machines of the cluster reach"
            )


@contextmanager
def _clean_up_on_failure(job: WriteJob, fragments: Sequence[Fragment]) -> Iterator[None]:
    """Delete the files of fragments if their commit fails, unless it is uncertain."""
    try:
        yield
    except UncertainCommitError:
        raise
    except AlreadyCommittedError as error:
        with suppress(LanceError):
            job.abort(_unused_fragments(job, fragments, error.version))
        raise
    except LanceError:
        # The caller gets the error of the commit, not one of the deletion.
        with suppress(StorageError):
            job.abort(fragments)
        raise


def _unused_fragments(job: WriteJob, fragments: Sequence[Fragment], version: int) -> list[Fragment]:
    """Return the fragments whose files a version does not use."""
    # An earlier commit of the same fragments may have succeeded, although its reply was lost.
    manifest = read_version(job.store(), version)
    used = {file.path for fragment in manifest.fragments for file in fragment.files}
    return [
        fragment for fragment in fragments if used.isdisjoint(file.path for file in fragment.files)
    ]
