"""A write from start to end: planned on the driver, carried out by any number of writers, committed
on the driver.

| step | where | what |
| --- | --- | --- |
| `begin_write` | driver | looks at the table, settles schema, field ids and file version |
| `WriteJob.writer` | workers | data files; nothing refers to them yet |
| `WriteJob.commit` | driver | one manifest with all fragments |
| `WriteJob.abort`, `abort_all` | driver | deletes the data files of a write that was not committed |

An append to a table that is not there creates it. If somebody else creates it meanwhile with the
same columns, the rows are appended to theirs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar, get_args

import pyarrow as pa

from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    InvalidOptionError,
    SchemaMismatchError,
    TableExistsError,
    UnsupportedFeatureError,
    VersionNotFoundError,
    naming,
)
from lance_spark.file.blobs.fields import for_version, input_schema, new_schema
from lance_spark.file.blobs.writer import BlobOptions
from lance_spark.file.schema.schema import Schema
from lance_spark.file.v0_1.dictionaries import encode_dictionaries, has_dictionaries
from lance_spark.file.writer import check_types
from lance_spark.storage.options.base_paths import check_base_params
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import parse_uri
from lance_spark.table.append_schema import filled_by
from lance_spark.table.bases import (
    BaseLike,
    Target,
    folders,
    new_bases,
    same_bases,
    targets,
)
from lance_spark.table.commit.commit import DEFAULT_MAX_RETRIES, commit
from lance_spark.table.commit.idempotency import WriteToken
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments import file_versions
from lance_spark.table.fragments.dictionaries import common_dictionaries
from lance_spark.table.fragments.fragment import Fragment, check_unique
from lance_spark.table.fragments.writer import (
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    TAG_BYTES,
    FragmentWriter,
    delete_fragments,
    delete_written,
)
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import check_identity
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import branch_of, open_table, read_latest
from lance_spark.table.operations.data.append import Append, field_paths
from lance_spark.table.operations.data.overwrite import Overwrite
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.placement import check_targets
from lance_spark.table.refs import names as ref_names
from lance_spark.table.refs.foreign_branches import check_branch_bases
from lance_spark.table.rows.ids import check_names

Mode = Literal["create", "append", "overwrite"]
_Job = TypeVar("_Job", bound="WriteJob")
#: Gets a version, what is appended to it, and the table's name; returns the fields of the data
#: files.
Fit = Callable[[Manifest, Schema, str], Schema] | None


@dataclass(frozen=True, slots=True)
class WriteJob:
    """A write that was planned. Can be pickled; holds no manifest.

    Attributes
    ----------
    uri : str
        Root of the table.
    mode : str
        "create", "append" or "overwrite".
    schema : Schema
        The columns of the data files, with their field ids. An append may have fewer than the
        table.
    file_version : tuple of int
        Version of the data files.
    read_version : int
        The version that the write was planned on; 0 if there was no table.
    read_identity : (int, str or None) or None
        `Manifest.identity` of that version.
    max_rows_per_file, max_bytes_per_file : int
    enable_stable_row_ids : bool
        For a table that is created.
    config, table_metadata : mapping of str to str
        Set on a table that is created or overwritten.
    storage_options : mapping, not shown by `repr`
    tag : bytes
        Random; ends the names of the job's data files, so that those of writers that were never
        heard of can be found.
    blobs : BlobOptions
        How values of blob columns are written.
    commit_retries : int
        How often a commit starts again after other writers were faster.
    base_paths : mapping of int to BasePath
        Of the table; those of a new table are registered by the commit.
    targets : tuple of int or None
        Ids of the base paths that data files go to in turns; None for the table itself.
    """

    uri: str = field(repr=False)
    mode: Mode
    schema: Schema
    file_version: tuple[int, int]
    read_version: int
    read_identity: tuple[int, str | None] | None = None
    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE
    enable_stable_row_ids: bool = False
    config: Mapping[str, str] = field(default_factory=dict)
    table_metadata: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    tag: bytes = field(default_factory=lambda: os.urandom(TAG_BYTES))
    blobs: BlobOptions = field(default_factory=BlobOptions)
    commit_retries: int = DEFAULT_MAX_RETRIES
    base_paths: Mapping[int, BasePath] = field(default_factory=dict)
    targets: tuple[Target, ...] = (None,)

    @property
    def arrow_schema(self) -> pa.Schema:
        """What batches are brought to before they are written."""
        return input_schema(self.schema)

    def writer(self, first: int = 0) -> FragmentWriter:
        """Return a new writer of data files; any number may write at once.

        Parameters
        ----------
        first : int
            Which of several target bases comes first; see `FragmentWriter`.
        """
        return FragmentWriter(
            self.paths(),
            self.schema,
            self.file_version,
            max_rows_per_file=self.max_rows_per_file,
            max_bytes_per_file=self.max_bytes_per_file,
            tag=self.tag,
            blobs=self.blobs,
            targets=self.targets,
            first=first,
        )

    def commit(
        self, fragments: Sequence[Fragment], properties: Mapping[str, str] | None = None
    ) -> int:
        """Make the fragments part of the table; return the new version as a number. See
        `commit_manifest`.
        """
        return self.commit_manifest(fragments, properties).version

    def commit_manifest(
        self,
        fragments: Sequence[Fragment],
        properties: Mapping[str, str] | None = None,
        once: WriteToken | None = None,
    ) -> Manifest:
        """Make the fragments part of the table.

        Parameters
        ----------
        fragments : sequence of Fragment
            Of all writers, in the order that the rows shall have. None at all makes a version too.
        properties : mapping of str to str, optional
            Kept with the transaction, for example ``__lance_commit_message``.
        once : Once, optional
            The write must not be committed if it has been before.

        Returns
        -------
        Manifest
            The new version.

        Raises
        ------
        CommitConflictError
            Another change was committed since the write was planned, and this one does not hold on
            top of it.
        AlreadyCommittedError
            `once` has been committed, and the table has its rows: `abort` the fragments, unless
            they are those that were.
        TableExistsError
            The table was to be created, and somebody else has.
        UncertainCommitError
            The store failed, and nobody knows whether the table has the rows: do not `abort`.
        UnsupportedFeatureError, StorageError
        """
        store = self._store()
        base = self.base(store) if self.read_version else None
        transaction = Transaction.new(
            self.read_version, self._operation(fragments, base), properties
        )
        try:
            return commit(
                store,
                transaction,
                base,
                max_retries=self.commit_retries,
                enable_stable_row_ids=self.enable_stable_row_ids,
                once=once,
            )
        except TableExistsError:
            if self.mode == "create":
                raise
        newest = self._table_created_meanwhile(store)
        append = Append(tuple(fragments), field_paths(self.schema.to_protos()))
        transaction = Transaction.new(newest.version, append, properties)
        return commit(store, transaction, newest, max_retries=self.commit_retries, once=once)

    def become(self, kind: type[_Job], **more: Any) -> _Job:
        """Return the same write as one of a kind that has more fields."""
        return kind(**{item.name: getattr(self, item.name) for item in fields(self)}, **more)

    def abort(self, fragments: Sequence[Fragment]) -> None:
        """Delete the data files of fragments that are not committed.

        Raises
        ------
        StorageError
        """
        delete_fragments(self.paths(), fragments)

    def abort_all(self) -> None:
        """Delete every data file that a writer of this job has written, of a job that was not
        committed.

        Lists the table's data files.

        Raises
        ------
        StorageError
        """
        paths = self.paths()
        for target in self.targets:
            delete_written(paths, target, self.tag)

    def paths(self) -> TablePaths:
        """Return what opens the table's files."""
        return TablePaths(self._store(), self.base_paths, self.storage_options)

    def _store(self) -> ObjectStore:
        return ObjectStore.from_uri(self.uri, self.storage_options)

    def base(self, store: ObjectStore) -> Manifest:
        """Read the version that the write was planned on.

        Raises
        ------
        CommitConflictError
            It has been cleaned up.
        TableNotFoundError
            The table has been deleted.
        VersionNotFoundError
            It was deleted and made anew.
        StorageError
        """
        try:
            base = open_table(
                self.uri, version=self.read_version, storage_options=self.storage_options
            ).manifest
        except VersionNotFoundError:
            raise CommitConflictError(
                f"{store.display}: version {self.read_version}, which this {self.mode} was planned "
                "on, has been "
                "cleaned up; write again",
                retryable=True,
            ) from None
        check_identity(store.display, base, self.read_identity)
        return base

    def _operation(
        self, fragments: Sequence[Fragment], base: Manifest | None
    ) -> Append | Overwrite:
        protos = self.schema.to_protos()
        if self.mode == "append" and base is not None:
            return Append(tuple(fragments), field_paths(protos))
        dictionaries = b""
        if self.file_version == (0, 1) and has_dictionaries(self.schema):
            values = common_dictionaries(self.paths(), fragments, self.schema)
            dictionaries = b"".join(bytes(item) for item in encode_dictionaries(protos, values, 0))
        return Overwrite(
            fragments=tuple(fragments),
            schema=tuple(protos),
            schema_metadata=self.schema.metadata,
            config_upsert_values=self.config,
            data_storage_version=self.file_version,
            table_metadata=self.table_metadata,
            dictionaries=dictionaries,
            initial_bases=()
            if self.read_version
            else tuple(path.to_proto() for path in self.base_paths.values()),
        )

    def _table_created_meanwhile(self, store: ObjectStore) -> Manifest:
        newest = read_latest(store)
        same = (
            self.mode == "append"
            and not self.base_paths
            and not (self.file_version == (0, 1) and has_dictionaries(self.schema))
            and _shape(newest.schema) == _shape(self.schema)
            and newest.data_storage_version == self.file_version
            and newest.flags.stable_row_ids == self.enable_stable_row_ids
        )
        if same:
            return newest
        raise CommitConflictError(
            f"{store.display}: somebody else created the table while this {self.mode} was under "
            "way; write again",
            retryable=True,
        )


def begin_write(
    uri: str,
    schema: pa.Schema,
    *,
    mode: Mode = "append",
    data_storage_version: str | None = None,
    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE,
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE,
    enable_stable_row_ids: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    config: Mapping[str, str] | None = None,
    table_metadata: Mapping[str, str] | None = None,
    blobs: BlobOptions | None = None,
    commit_retries: int = DEFAULT_MAX_RETRIES,
    branch: str | None = None,
    initial_bases: Sequence[BaseLike] | None = None,
    target_bases: Sequence[str] | None = None,
    target_all_bases: bool | None = None,
    fit: Fit = None,
) -> WriteJob:
    """Plan a write.

    Parameters
    ----------
    uri : str
        Root of the table, or of one of its branches: a path or a URI.
    schema : pyarrow.Schema
        Of the data.
    mode : str
        "create" makes a new table, "append" adds to one or makes it, "overwrite" replaces schema
        and rows or makes it.
    data_storage_version : str, optional
        Version of the data files: "2.0", "2.1", "2.2" or "stable", or "0.1" or "legacy". The
        table's if none is given, "stable" for a new one.
    max_rows_per_file, max_bytes_per_file : int
        A file is closed once it holds that many rows (exactly), or at least that many bytes.
    enable_stable_row_ids : bool
        For a table that is created: rows keep their ids when they move.
    storage_options : mapping, optional
        Credentials, endpoint and the like, by the names that other Lance clients use; see
        docs/reference/stores.md.
    config, table_metadata : mapping of str to str, optional
        Set on a table that is created or overwritten.
    blobs : BlobOptions, optional
        How values of blob columns are written.
    commit_retries : int
        How often a commit starts again after other writers were faster.
    branch : str, optional
        Write to this branch, which there is; ``main`` for the main one. The one that `uri` is the
        root of, if none is given.
    initial_bases : sequence of BasePath, optional
        Other places where files of a new table can lie. A table that exists must have them already.
    target_bases : sequence of str, optional
        Names or paths of the base paths that new data files go to, one after the other.
    target_all_bases : bool, optional
        True: new data files go to the table itself and all base paths, one after the other; False:
        to all base paths.
    fit : callable, optional
        Chooses the fields of appended data: by default those of the table that the data has.

    Raises
    ------
    TableExistsError
        The mode is "create", and there is a table.
    SchemaMismatchError
        Appended data does not fit the table.
    InvalidOptionError
        An option has no such value, or cannot be used on this table.
    UnsupportedFeatureError
        The table needs more than this release does, or files of that version are not written.
    InvalidInputError, UnsupportedTypeError
        The schema cannot be stored.
    CorruptTableError, StorageError
    """
    with naming(parse_uri(uri).display):
        _check_options(mode, max_rows_per_file, max_bytes_per_file, commit_retries)
        wanted = (
            file_versions.parse_version(data_storage_version)
            if data_storage_version is not None
            else None
        )
        data = Schema.from_arrow(schema)
        if not data.fields:
            raise InvalidInputError(
                f"{parse_uri(uri).display}: data without columns cannot be written"
            )
        store = ObjectStore.from_uri(uri, storage_options)
        # Of a new table there is the main branch.
        if branch is not None and (branch != ref_names.MAIN or versions.newest(store) is not None):
            store = branch_of(store, branch)
        store.check_put_if_absent()
        manifests = versions.list_newest(store)
        newest = manifests[-1] if manifests else None
        if newest is not None and mode == "create":
            raise TableExistsError(
                f"{store.display}: there is a table already, with "
                f"{versions.describe(versions.list_manifests(store))}; "
                "append to it, overwrite it, or choose another path"
            )
        if newest is not None:
            versions.scheme_for_commit(store, manifests)
        elif store.exists(versions.LATEST):
            raise versions.not_a_table(store)
        base = read_latest(store, newest) if newest is not None else None
        job = WriteJob(
            uri=store.uri,
            mode=mode,
            schema=data,
            file_version=wanted or file_versions.DEFAULT,
            read_version=base.version if base else 0,
            read_identity=base.identity if base else None,
            max_rows_per_file=max_rows_per_file,
            max_bytes_per_file=max_bytes_per_file,
            enable_stable_row_ids=enable_stable_row_ids,
            config=dict(config or {}),
            table_metadata=dict(table_metadata or {}),
            storage_options=dict(storage_options or {}),
            blobs=blobs or BlobOptions(),
            commit_retries=commit_retries,
            base_paths={path.id: path for path in new_bases(initial_bases or ())},
        )
        if base is not None:
            check_branch_bases(store, base)
            if not same_bases(initial_bases or (), base.base_paths.values()):
                raise InvalidOptionError(
                    f"{store.display}: initial_bases are for a new table, and this one exists and "
                    "does not have all of them; add base "
                    "paths to it by Dataset.add_bases or LanceTable.addBases"
                )
            job = replace(job, base_paths=dict(base.base_paths))
        bases = [base_path.path for base_path in job.base_paths.values()]
        check_base_params(job.storage_options, bases, store.display)
        job = replace(job, blobs=replace(job.blobs, bases=folders(job.base_paths)))
        job = replace(job, targets=targets(job.base_paths, target_bases, target_all_bases, store))
        check_targets(job.paths(), job.base_paths, job.targets)
        if base is not None:
            job = _planned_on(job, base, wanted, store, fit)
        if base is None or mode == "overwrite":
            check_names(schema.names)
            first = base.first_new_field_id if base is not None else 0
            if first or for_version(schema, job.file_version) is not schema:
                data = new_schema(schema, job.file_version, first)
            job = replace(job, schema=data)
        if job.file_version not in file_versions.WRITABLE:
            raise UnsupportedFeatureError(
                f"{store.display}: data files of version {file_versions.text(job.file_version)} "
                "are not written, only "
                f"{file_versions.writable()}; {_way_out(job, base)}"
            )
        check_types(job.schema, job.file_version)
        return job


def _planned_on(
    job: WriteJob, base: Manifest, wanted: tuple[int, int] | None, store: ObjectStore, fit: Fit
) -> WriteJob:
    replaces = job.mode == "overwrite"
    base.check_writable(store.display)
    if job.enable_stable_row_ids and not base.flags.stable_row_ids:
        raise InvalidOptionError(
            f"{store.display}: stable row ids can be enabled for a new table only, and there is "
            "one already"
        )
    if replaces:
        return replace(job, file_version=wanted or base.data_storage_version)
    check_unique(base.message.fragments, base.name)
    if wanted is not None and wanted != base.data_storage_version:
        raise InvalidOptionError(
            f"{store.display}: its data files are of version "
            f"{file_versions.text(base.data_storage_version)}, which an append keeps; "
            f"leave data storage version {file_versions.text(wanted)} away, or overwrite the table"
        )
    if job.config or job.table_metadata:
        raise InvalidOptionError(
            f"{store.display}: configuration and metadata are set when a table is created or "
            "overwritten, "
            "not by an append"
        )
    schema = (fit or filled_by_base)(base, job.schema, store.display)
    if base.data_storage_version == (0, 1):
        _check_complete(schema, base.schema, store.display)
    return replace(job, schema=schema, file_version=base.data_storage_version)


def filled_by_base(base: Manifest, data: Schema, name: str) -> Schema:
    """Return the fields of a version that appended data has; see `filled_by`."""
    return filled_by(base.schema, data, name)


def _check_complete(schema: Schema, table: Schema, name: str) -> None:
    """Refuse rows that lack columns, or bring new ones: files of version 0.1 must have all."""
    own, wanted = ({node.id: node.name for node in item.walk()} for item in (schema, table))
    different = {**own, **wanted}
    for field_id in own.keys() ^ wanted.keys():
        raise SchemaMismatchError(
            f"{name}: column {different[field_id]!r} is not in "
            f"{'the data' if field_id in wanted else 'the table'}, and data "
            "files of version 0.1 must have all columns of a table; give all, or overwrite the "
            "table with data storage "
            "version 2.2"
        )


def _check_options(
    mode: str, max_rows_per_file: int, max_bytes_per_file: int, commit_retries: int
) -> None:
    if mode not in get_args(Mode):
        raise InvalidOptionError(f"mode {mode!r} is none of {', '.join(get_args(Mode))}")
    for name, value in (
        ("max_rows_per_file", max_rows_per_file),
        ("max_bytes_per_file", max_bytes_per_file),
    ):
        if value < 1:
            raise InvalidOptionError(f"{name} must be at least 1, not {value}")
    if commit_retries < 0:
        raise InvalidOptionError(f"commit_retries must be at least 0, not {commit_retries}")


def _way_out(job: WriteJob, base: Manifest | None) -> str:
    if base is not None and job.mode == "append":
        return "overwrite the table with data storage version 2.2, or append with pylance"
    return "set data storage version 2.2"


def _shape(schema: Schema) -> list[tuple[object, ...]]:
    return [(f.id, f.parent_id, f.name, f.logical_type, f.nullable) for f in schema.walk()]
