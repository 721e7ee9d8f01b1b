"""The procedures of a catalog, and the columns of their results.

Most procedures are methods of `LanceTable` under names in snake case. The others are functions of
`methods`. A procedure has the parameters of its function, whose types in SQL follow from the
annotations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lance_spark.spark.table.bases import BASE_COLUMNS, REPAIR_COLUMNS
from lance_spark.spark.table.history import (
    BRANCH_COLUMNS,
    DETAIL_COLUMNS,
    HISTORY_COLUMNS,
    TAG_COLUMNS,
)
from lance_spark.spark.table.indexes import CHECK_COLUMNS, INDEX_COLUMNS
from lance_spark.spark.table.maintenance import CLEANUP_COLUMNS, COMPACTION_COLUMNS, VACUUM_COLUMNS
from lance_spark.spark.table.mem_wal import MEM_WAL_CLEANUP_COLUMNS, SHARD_COLUMNS

#: A changed table: the number of the new version, or of the newest if nothing changed.
VERSION = "version long"
_ROWS = f"{VERSION}, num_inserted_rows long, num_updated_rows long, num_deleted_rows long"
_NAME = "name string"
_COVERAGE = "fragments_indexed long, index_name string"


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure.

    Attributes
    ----------
    result : str
        Columns of the result.
    has_jobs : bool
        Whether it runs Spark jobs, or reads views of the session.
    opens : bool
        Whether it works on a table that exists.
    required : tuple of str
        Parameters that a call must have, although the function has a default.
    condition : str or None
        The optional parameter that chooses rows. A call without it chooses all rows. A call that
        gives null is refused, as null may be the result of an expression, such as a concatenation.
    aliases : tuple of str
        Names of the same procedure in other formats.
    """

    result: str = VERSION
    has_jobs: bool = False
    opens: bool = True
    required: tuple[str, ...] = ()
    condition: str | None = None
    aliases: tuple[str, ...] = ()


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
}

PROCEDURES: Mapping[str, Procedure] = {
    # Maintenance
    "optimize": Procedure(COMPACTION_COLUMNS, has_jobs=True, condition="where"),
    "vacuum": Procedure(VACUUM_COLUMNS),
    "cleanup": Procedure(CLEANUP_COLUMNS),
    "validate": Procedure(),
    # History
    "history": Procedure(HISTORY_COLUMNS),
    "detail": Procedure(DETAIL_COLUMNS),
    "restore_to_version": Procedure(aliases=("rollback_to_version", "rollback_to_snapshot")),
    "restore_to_timestamp": Procedure(aliases=("rollback_to_timestamp",)),
    "restore_to_tag": Procedure(aliases=("rollback_to_tag",)),
    "tags": Procedure(TAG_COLUMNS),
    "create_tag": Procedure(_NAME),
    "update_tag": Procedure(_NAME),
    "delete_tag": Procedure(_NAME),
    "branches": Procedure(BRANCH_COLUMNS),
    "create_branch": Procedure(_NAME),
    "delete_branch": Procedure(_NAME),
    "clone": Procedure("target string"),
    # Columns
    "add_columns": Procedure(has_jobs=True),
    "add_columns_from": Procedure(has_jobs=True),
    "update_columns_from": Procedure(_ROWS, has_jobs=True),
    "drop_columns": Procedure(),
    "rename_column": Procedure(),
    "alter_column": Procedure(has_jobs=True),
    "reorder_columns": Procedure(),
    "set_unenforced_primary_key": Procedure("status string, primary_key_columns string"),
    # Rows
    "delete": Procedure(_ROWS, has_jobs=True, condition="condition"),
    "update": Procedure(_ROWS, has_jobs=True, required=("set",), condition="condition"),
    "update_columns": Procedure(_ROWS, has_jobs=True),
    "replace_where": Procedure(_ROWS, has_jobs=True),
    "upsert": Procedure(_ROWS, has_jobs=True),
    # Base paths
    "bases": Procedure(BASE_COLUMNS),
    "add_bases": Procedure(),
    "repoint_base": Procedure(),
    "repair_branches": Procedure(REPAIR_COLUMNS),
    "move_fragments": Procedure(COMPACTION_COLUMNS, has_jobs=True, condition="where"),
    # Indexes
    "describe_indices": Procedure(INDEX_COLUMNS),
    "check_index": Procedure(CHECK_COLUMNS, has_jobs=True),
    "drop_index": Procedure("index_name string, status string"),
    "create_index": Procedure(_COVERAGE, has_jobs=True),
    "optimize_index": Procedure(_COVERAGE, has_jobs=True),
    "refresh_index": Procedure(_COVERAGE, has_jobs=True),
    "optimize_indices": Procedure(has_jobs=True),
    # MemWAL
    "initialize_mem_wal": Procedure(),
    "mem_wal_shards": Procedure(SHARD_COLUMNS),
    "compact_mem_wal": Procedure(_ROWS, has_jobs=True),
    "clean_mem_wal": Procedure(MEM_WAL_CLEANUP_COLUMNS),
    "disable_mem_wal": Procedure(has_jobs=True),
    # Names
    "register_table": Procedure("location string", opens=False),
    "deregister_table": Procedure("location string", opens=False),
}
