"""The plan of a write: checks and choices of the driver before tasks write data files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, get_args

import pyarrow as pa

from lance_spark.errors import (
    InvalidInputError,
    InvalidOptionError,
    SchemaMismatchError,
    TableExistsError,
    UnsupportedFeatureError,
    error_context,
)
from lance_spark.file.blobs.fields import for_version, new_schema
from lance_spark.file.blobs.writer import BlobOptions
from lance_spark.file.schema.rules import check_fields
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import check_types
from lance_spark.storage.options.base_paths import check_base_params
from lance_spark.storage.parallel import call_all
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import parse_uri
from lance_spark.subjects import MEM_WAL_SHARDS_CHECK, load
from lance_spark.table.align import filled_by
from lance_spark.table.bases import BaseLike, Target, folders, new_bases, same_bases, targets
from lance_spark.table.commit.options import DEFAULT_MAX_RETRIES
from lance_spark.table.commit.write_job import STRATEGIES, KeptBase, Mode, TableSettings, WriteJob
from lance_spark.table.fragments import file_versions
from lance_spark.table.fragments.fragment import check_unique
from lance_spark.table.fragments.limits import WriteLimits
from lance_spark.table.indexes.sections import has_mem_wal, read_section
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import branch_of, check_branch_bases, read_latest
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.placement import check_targets
from lance_spark.table.refs import names as ref_names
from lance_spark.table.rows.ids import check_names

#: Receives a version, the schema of appended data, and the table's name; returns the schema of the
#: data files.
ChooseSchema = Callable[[Manifest, Schema, str], Schema]
_NO_LIMITS = WriteLimits()
_NO_SETTINGS = TableSettings()


@dataclass(frozen=True, slots=True)
class BaseTargets:
    """Base paths of a write.

    Attributes
    ----------
    initial : sequence of BasePath
        Base paths of a new table. An existing table must already have them.
    names : sequence of str, optional
        Names or paths of the base paths for new data files, used in turn.
    all_bases : bool, optional
        True: new data files go to the table itself and all base paths, in turn; False: to all base
        paths, in turn.
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
) -> WriteJob:
    """Plan a write.

    Parameters
    ----------
    uri : str
        Root of the table, or of one of its branches: a path or a URI.
    schema : pyarrow.Schema
        Schema of the data.
    mode : str
        "create" creates a table, "append" appends rows, "overwrite" replaces schema and rows; the
        latter two create the table if it does not exist.
    data_storage_version : str, optional
        File version of the data files: "2.0", "2.1", "2.2" or "stable", or "0.1" or "legacy". By
        default that of the table, or "stable" for a new table.
    storage_options : mapping, optional
        Credentials, endpoint and other settings of the store, by the names that other Lance
        clients use; see docs/reference/stores.md.
    blobs : BlobOptions, optional
        How values of blob columns are written.
    commit_retries : int, optional
        Maximum number of times that the commit starts again after another client was faster; 20
        by default.
    branch : str, optional
        The branch to write to, which must exist; ``main`` for the main branch. By default the
        branch whose root `uri` is.
    choose_schema : callable, optional
        Chooses the schema of appended data files; by default the table's fields that the data has.
    opened : OpenForWrite, optional
        What `open_for_write` has just returned for an append with these options.

    Raises
    ------
    TableExistsError
        The mode is "create", and the table exists.
    SchemaMismatchError
        Appended data does not fit the table.
    InvalidOptionError
        The value of an option is not valid, or the option cannot be used on this table.
    UnsupportedFeatureError
        The table needs a feature that this release does not have, or this release does not write
        files of that version.
    InvalidInputError, UnsupportedTypeError
        The schema cannot be stored.
    CorruptTableError, StorageError
    """
    with error_context(parse_uri(uri).display):
        retries = DEFAULT_MAX_RETRIES if commit_retries is None else commit_retries
        _check_options(mode, limits, retries)
        version = None
        if data_storage_version is not None:
            version = file_versions.parse_version(data_storage_version)
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
            file_version=version or file_versions.DEFAULT,
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
        if job.file_version not in file_versions.WRITABLE:
            raise UnsupportedFeatureError(
                f"{store.display}: this release writes data files of version "
                f"{file_versions.writable()}, not {file_versions.text(job.file_version)}; "
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

    Raises
    ------
    TableExistsError, UnsupportedFeatureError, CorruptTableError, StorageError
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
            f"{file_versions.text(base.data_storage_version)}, and an append must use it, too; "
            f"do not set data storage version {file_versions.text(version)}, or overwrite the table"
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
