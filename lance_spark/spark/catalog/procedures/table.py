"""The procedures of a catalog: their parameters, and the columns of their results.

Most procedures are methods of `LanceTable` under names in snake case, with the same parameters. The
others are functions of `methods`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lance_spark.spark.table.base import COMPACTION_COLUMNS
from lance_spark.spark.table.bases import BASE_COLUMNS, REPAIR_COLUMNS
from lance_spark.spark.table.history import (
    BRANCH_COLUMNS,
    DETAIL_COLUMNS,
    HISTORY_COLUMNS,
    TAG_COLUMNS,
)
from lance_spark.spark.table.indexes import CHECK_COLUMNS, INDEX_COLUMNS
from lance_spark.spark.table.maintenance import CLEANUP_COLUMNS, VACUUM_COLUMNS
from lance_spark.spark.table.mem_wal import MEM_WAL_CLEANUP_COLUMNS, SHARD_COLUMNS

#: A changed table: the number of the new version, or of the newest if nothing changed.
VERSION = "version long"
_ROWS = f"{VERSION}, num_inserted_rows long, num_updated_rows long, num_deleted_rows long"
_NAME = "name string"
_COMMIT = {"commit_message": "string", "transaction_properties": "map<string, string>"}
_CHANGE = {**_COMMIT, "conflict_retries": "int"}
#: Parameters of all procedures of a table: arguments of `LanceTable.forPath`.
_TABLE = {"table": "string"}
_OPENING = {"branch": "string", "table_options": "map<string, string>"}
_INDEX = {"name": "string"}
_INDEX_OPTIONS = {"options": "map<string, string>", **_CHANGE}
_COVERAGE = "fragments_indexed long, index_name string"


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure.

    Attributes
    ----------
    required, optional : mapping of str to str
        Types of the parameters that a call must have, and of those that it may have.
    result : str
        Columns of the result.
    has_jobs : bool
        Whether it runs Spark jobs, or reads views of the session.
    opens : bool
        Whether it works on a table that exists.
    condition : str or None
        The optional parameter that chooses rows. A call without it chooses all rows. A call that
        gives null is refused, as null may be the result of an expression, such as a concatenation.
    aliases : tuple of str
        Names of the same procedure in other formats.
    """

    required: Mapping[str, str] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)
    result: str = VERSION
    has_jobs: bool = False
    opens: bool = True
    condition: str | None = None
    aliases: tuple[str, ...] = ()

    @property
    def parameters(self) -> dict[str, tuple[str, bool]]:
        """Type of each parameter, and whether a call must have it."""
        optional = {**self.optional, **_OPENING} if self.opens else self.optional
        return {
            **{name: (text, True) for name, text in {**_TABLE, **self.required}.items()},
            **{name: (text, False) for name, text in optional.items()},
        }


_COMPACTION = {
    "target_rows_per_fragment": "long",
    "target_bytes_per_fragment": "long",
    "max_bytes_per_file": "long",
    "max_rows_per_group": "long",
    "materialize_deletions": "boolean",
    "materialize_deletions_threshold": "double",
    "max_overlays_per_fragment": "long",
    "defer_index_remap": "boolean",
    "max_source_fragments": "long",
    "max_source_rows": "long",
    "max_source_bytes": "long",
    "excluded_fragment_ids": "array<long>",
    "batch_size": "long",
    "num_threads": "long",
}
_VACUUM = {
    "retention_hours": "double",
    "before_version": "long",
    "before_timestamp_millis": "long",
    "retain_versions": "long",
    "delete_unverified": "boolean",
    "error_if_tagged_old_versions": "boolean",
    "dry_run": "boolean",
}
_NAMES = {"names": "array<string>"}
_COLUMNS = {"columns": "map<string, string>"}
_FROM = {"source": "string"}
_KEYED = {"key": "array<string>", "columns": "array<string>"}
_REFERENCE = {"version": "long", "tag": "string"}

#: Default of the parameter that chooses rows: a condition that all rows meet.
ALL_ROWS = "true"

#: Comments of parameters that mean the same in all procedures.
COMMENTS: Mapping[str, str] = {
    "table": "Name of a table in the catalog, or a path.",
    "branch": "Branch of the table; by default the main branch.",
    "table_options": "Options of the table's store, or a version.",
    "source": "Name of a table or view of the session.",
    "key": "Columns of both; `_rowaddr`, or the primary key, if it is left out.",
    "missing": "`null`: rows whose key the source does not have get nulls. `error`: an error.",
    "version": "Number of a version of the branch. Where it can be left out, the newest.",
    "tag": "Name of a tag. It can stand for a version.",
    "bases": "Paths by the names of base paths.",
    "is_dataset_root": "Whether the folders have the layout of a table: files are in data/.",
    "names": "Names of columns, or dotted paths of children of structs.",
    "location": "Path of the table.",
    "if_not_exists": "Whether to change nothing, instead of failing, if the name exists already.",
    "or_replace": "Whether a tag of the name moves, if it exists already.",
    "index_names": "Names of indexes; by default all that this release can extend.",
    "if_exists": "Whether to change nothing, instead of failing, if the name does not exist.",
    "commit_message": "Stored in the transaction.",
    "transaction_properties": "Stored in the transaction.",
    "conflict_retries": "Maximum number of times to start again after a conflict.",
    "max_rows_per_group": "No effect.",
    "batch_size": "No effect.",
    "num_threads": "No effect.",
}

PROCEDURES: Mapping[str, Procedure] = {
    # Maintenance
    "optimize": Procedure(
        {},
        {
            "where": "string",
            "sort_by": "array<string>",
            "z_order_by": "array<string>",
            **_COMPACTION,
            **_CHANGE,
        },
        COMPACTION_COLUMNS,
        has_jobs=True,
        condition="where",
    ),
    "vacuum": Procedure({}, _VACUUM, VACUUM_COLUMNS),
    "cleanup": Procedure(
        {}, {"older_than": "interval day to second", "dry_run": "boolean"}, CLEANUP_COLUMNS
    ),
    "validate": Procedure(),
    # History
    "history": Procedure({}, {"limit": "int"}, HISTORY_COLUMNS),
    "detail": Procedure(result=DETAIL_COLUMNS),
    "restore_to_version": Procedure(
        {"version": "long"}, _CHANGE, aliases=("rollback_to_version", "rollback_to_snapshot")
    ),
    "restore_to_timestamp": Procedure(
        {"timestamp": "timestamp_ltz"}, _CHANGE, aliases=("rollback_to_timestamp",)
    ),
    "restore_to_tag": Procedure({"tag": "string"}, _CHANGE, aliases=("rollback_to_tag",)),
    "tags": Procedure(result=TAG_COLUMNS),
    "create_tag": Procedure(
        {"name": "string"},
        {**_REFERENCE, "if_not_exists": "boolean", "or_replace": "boolean"},
        result=_NAME,
    ),
    "update_tag": Procedure({"name": "string"}, _REFERENCE, result=_NAME),
    "delete_tag": Procedure({"name": "string"}, {"if_exists": "boolean"}, result=_NAME),
    "branches": Procedure(result=BRANCH_COLUMNS),
    "create_branch": Procedure(
        {"name": "string"}, {**_REFERENCE, "if_not_exists": "boolean"}, result=_NAME
    ),
    "delete_branch": Procedure({"name": "string"}, {"if_exists": "boolean"}, result=_NAME),
    "clone": Procedure(
        {"target": "string"}, {"is_shallow": "boolean", **_REFERENCE}, result="target string"
    ),
    # Columns
    "add_columns": Procedure(
        _COLUMNS,
        {"nullable": "boolean", "options": "map<string, string>", **_CHANGE},
        has_jobs=True,
    ),
    "add_columns_from": Procedure(
        _FROM,
        {
            **_KEYED,
            "missing": "string",
            "options": "map<string, string>",
            **_CHANGE,
        },
        has_jobs=True,
    ),
    "update_columns_from": Procedure(_FROM, {**_KEYED, **_CHANGE}, _ROWS, has_jobs=True),
    "drop_columns": Procedure(_NAMES, _CHANGE),
    "rename_column": Procedure({"name": "string", "new_name": "string"}, _CHANGE),
    "alter_column": Procedure(
        {"name": "string"},
        {"nullable": "boolean", "data_type": "string", **_CHANGE},
        has_jobs=True,
    ),
    "reorder_columns": Procedure(_NAMES, _CHANGE),
    "set_unenforced_primary_key": Procedure(
        {"columns": "array<string>"}, _COMMIT, "status string, primary_key_columns string"
    ),
    # Rows
    "delete": Procedure(
        {}, {"condition": "string", **_CHANGE}, _ROWS, has_jobs=True, condition="condition"
    ),
    "update": Procedure(
        {"set": "map<string, string>"},
        {"condition": "string", "mode": "string", **_CHANGE},
        _ROWS,
        has_jobs=True,
        condition="condition",
    ),
    "update_columns": Procedure(_COLUMNS, _CHANGE, _ROWS, has_jobs=True),
    "replace_where": Procedure(
        {"source": "string", "condition": "string"}, _CHANGE, _ROWS, has_jobs=True
    ),
    "upsert": Procedure({"source": "string"}, _CHANGE, _ROWS, has_jobs=True),
    # Base paths
    "bases": Procedure(result=BASE_COLUMNS),
    "add_bases": Procedure(
        {"bases": "map<string, string>"}, {"is_dataset_root": "boolean", **_COMMIT}
    ),
    "repoint_base": Procedure({"base": "string", "path": "string"}, _COMMIT),
    "repair_branches": Procedure(result=REPAIR_COLUMNS),
    "move_fragments": Procedure(
        {"base": "string"},
        {"where": "string", "fragment_ids": "array<long>", **_CHANGE},
        COMPACTION_COLUMNS,
        has_jobs=True,
        condition="where",
    ),
    # Indexes
    "describe_indices": Procedure(result=INDEX_COLUMNS),
    "check_index": Procedure(_INDEX, result=CHECK_COLUMNS, has_jobs=True),
    "drop_index": Procedure(
        _INDEX, {**_COMMIT, "if_exists": "boolean"}, "index_name string, status string"
    ),
    "create_index": Procedure(
        {**_INDEX, "method": "string", "columns": "array<string>"},
        {**_INDEX_OPTIONS, "if_not_exists": "boolean"},
        _COVERAGE,
        has_jobs=True,
    ),
    "optimize_index": Procedure(_INDEX, _INDEX_OPTIONS, _COVERAGE, has_jobs=True),
    "refresh_index": Procedure(_INDEX, _INDEX_OPTIONS, _COVERAGE, has_jobs=True),
    "optimize_indices": Procedure(
        {}, {"index_names": "array<string>", **_INDEX_OPTIONS}, has_jobs=True
    ),
    # MemWAL
    "initialize_mem_wal": Procedure(
        {},
        {
            "bucket_column": "string",
            "num_buckets": "int",
            "identity_column": "string",
            "unsharded": "boolean",
            "maintained_indexes": "array<string>",
            "writer_options": "map<string, string>",
            "commit_message": "string",
        },
    ),
    "mem_wal_shards": Procedure(result=SHARD_COLUMNS),
    "compact_mem_wal": Procedure({}, {"flush": "boolean", **_CHANGE}, _ROWS, has_jobs=True),
    "clean_mem_wal": Procedure(
        {}, {"older_than": "interval day to second"}, MEM_WAL_CLEANUP_COLUMNS
    ),
    "disable_mem_wal": Procedure(
        {}, {"compact": "boolean", "commit_message": "string"}, has_jobs=True
    ),
    # Names
    "register_table": Procedure({"location": "string"}, result="location string", opens=False),
    "deregister_table": Procedure(result="location string", opens=False),
}
