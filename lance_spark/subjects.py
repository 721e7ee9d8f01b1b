"""Where the core finds what it can do without.

The core is the format, transactions, scans and Spark. Each name below is the dotted path of an
object of a subject, which is imported when it is first needed: by a filter that names a function of
the subject, a table that has a MemWAL, a query that searches. Types of indexes are in
`lance_spark.indexes.registry`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: JSON: functions of filters by name, the kernel that computes them, and the values that indexes
#: of documents have.
JSON_FUNCTIONS = "lance_spark.json.expressions.FUNCTIONS"
JSON_KERNEL = "lance_spark.json.functions.json_value"
JSON_VALUES = "lance_spark.json.expressions.documents_of"
#: Functions of geometries by name.
SPATIAL_FUNCTIONS = "lance_spark.spatial.sql.RELATED"
#: MemWAL: what commits do for a table that has one, the checks of changes before they are planned,
#: and the keys of partitions that scans report. `table.indexes.sections` tells whether a table can
#: have a MemWAL.
MEM_WAL_CATCHUP = "lance_spark.mem_wal.table.details.catch_up_indexes"
MEM_WAL_PROGRESS = "lance_spark.mem_wal.table.details.record_compacted"
MEM_WAL_COMMIT_CHECK = "lance_spark.mem_wal.table.guard.check_commit"
MEM_WAL_SHARDS_CHECK = "lance_spark.mem_wal.table.guard.check_no_shards"
MEM_WAL_ROWS_CHECK = "lance_spark.mem_wal.table.guard.check_rows"
MEM_WAL_SCHEMA_CHECK = "lance_spark.mem_wal.table.guard.check_schema"
MEM_WAL_BUCKETS = "lance_spark.mem_wal.sharding.buckets_of"
MEM_WAL_DROP_CHECK = "lance_spark.mem_wal.table.guard.check_droppable"


def load(path: str) -> Any:
    """Return an object by the dotted path of its module, and its name in there."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)
