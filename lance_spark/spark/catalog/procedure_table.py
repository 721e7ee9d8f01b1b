"""The procedures of a catalog: their parameters, and the columns of their results.

Most procedures are methods of `LanceTable` under names in snake case, with the same parameters. The
others are functions of `procedure_methods`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: A changed table: the number of the new version, or of the newest if nothing changed.
VERSION = "version long"
_ROWS = f"{VERSION}, num_inserted_rows long, num_updated_rows long, num_deleted_rows long"
_NAME = "name string"
_COMMIT = {"commit_message": "string", "transaction_properties": "map<string, string>"}
_CHANGE = {**_COMMIT, "conflict_retries": "int"}
#: Parameters of all procedures of a table: what `LanceTable.forPath` takes.
_TABLE = {"table": "string"}
_OPENING = {"branch": "string", "table_options": "map<string, string>"}
_INDEX = {"name": "string"}


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure.

    Attributes
    ----------
    required, optional : mapping of str to str
        Types of the parameters that a call must have, and of those that it may have.
    result : str
        Columns, if the function does not return rows with columns of their own.
    has_jobs : bool
        Whether it runs Spark jobs, or reads views of the session.
    opens : bool
        Whether it works on a table that exists.
    """

    required: Mapping[str, str] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)
    result: str = VERSION
    has_jobs: bool = False
    opens: bool = True

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
        has_jobs=True,
    ),
    "vacuum": Procedure({}, _VACUUM),
    "cleanup": Procedure({}, {"older_than": "interval day to second", "dry_run": "boolean"}),
    "validate": Procedure(),
    # History
    "history": Procedure({}, {"limit": "int"}),
    "detail": Procedure(),
    "restore_to_version": Procedure({"version": "long"}, _CHANGE),
    "restore_to_timestamp": Procedure({"timestamp": "timestamp"}, _CHANGE),
    "restore_to_tag": Procedure({"tag": "string"}, _CHANGE),
    "tags": Procedure(),
    "create_tag": Procedure(
        {"name": "string"}, {**_REFERENCE, "if_not_exists": "boolean"}, result=_NAME
    ),
    "update_tag": Procedure({"name": "string"}, _REFERENCE, result=_NAME),
    "delete_tag": Procedure({"name": "string"}, {"if_exists": "boolean"}, result=_NAME),
    "branches": Procedure(),
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
    "delete": Procedure({}, {"condition": "string", **_CHANGE}, _ROWS, has_jobs=True),
    "update": Procedure(
        {"set": "map<string, string>"},
        {"condition": "string", "mode": "string", **_CHANGE},
        _ROWS,
        has_jobs=True,
    ),
    "update_columns": Procedure(_COLUMNS, _CHANGE, _ROWS, has_jobs=True),
    "replace_where": Procedure(
        {"source": "string", "condition": "string"}, _CHANGE, _ROWS, has_jobs=True
    ),
    "upsert": Procedure({"source": "string"}, _CHANGE, _ROWS, has_jobs=True),
    # Base paths
    "bases": Procedure(),
    "add_bases": Procedure(
        {"bases": "map<string, string>"}, {"is_dataset_root": "boolean", **_COMMIT}
    ),
    "repoint_base": Procedure({"base": "string", "path": "string"}, _COMMIT),
    "repair_branches": Procedure(),
    "move_fragments": Procedure(
        {"base": "string"},
        {"where": "string", "fragment_ids": "array<long>", **_CHANGE},
        has_jobs=True,
    ),
    # Indexes
    "describe_indices": Procedure(),
    "drop_index": Procedure(_INDEX, _COMMIT, "index_name string, status string"),
    "create_index": Procedure(
        {**_INDEX, "method": "string", "columns": "array<string>"},
        {"options": "map<string, string>"},
    ),
    "optimize_index": Procedure(_INDEX, {"options": "map<string, string>"}),
    "refresh_index": Procedure(_INDEX, {"options": "map<string, string>"}),
    # Names
    "register_table": Procedure({"location": "string"}, result="location string", opens=False),
    "deregister_table": Procedure(result="location string", opens=False),
}
