"""Names of the options of reads and writes, other spellings, and advice for refused names."""

from __future__ import annotations

from lance_spark.spark.options.declared import (
    FeedFields,
    OverwriteFields,
    ReadFields,
    StreamFields,
    TargetFields,
    UpsertFields,
    WriteFields,
)
from lance_spark.spark.options.option import Option

#: Change feeds and streams that read: which changes, and how much of them at a time.
FEED_NAMES = tuple(FeedFields.declared)
READ_NAMES = (
    *(name for name in ReadFields.declared if name not in TargetFields.declared),
    *FEED_NAMES,
)
UPSERT_NAMES = tuple(UpsertFields.declared)
OVERWRITE_NAMES = tuple(OverwriteFields.declared)
_OPTIONS: dict[str, Option] = {
    **WriteFields.declared,
    **StreamFields.declared,
    **UpsertFields.declared,
    **OverwriteFields.declared,
    **ReadFields.declared,
    **FeedFields.declared,
}
WRITE_NAMES = tuple(name for name in _OPTIONS if name not in READ_NAMES)
#: A condition that Spark has resolved, as JSON (`filter_trees`). Only `LanceTable` sets it.
FILTER_TREE = "filter_tree"
#: Most rows that each task returns of a full-text search, with the greatest scores. Only
#: `LanceTable` sets it, and takes the first rows of all tasks.
FULL_TEXT_LIMIT = "full_text_limit"
#: Each task of a vector search may return as many rows as are wanted: those that set it, take the
#: first rows of all tasks.
NEAREST_SHARES = "nearest_shares"
#: Whether a write by name refuses a table that was dropped.
MUST_EXIST = "must_exist"
#: The option, and the property of a table, that names the columns of partitions.
PARTITION_BY = "partition_by"
#: Options that the classes in the JVM set, and no user.
INTERNAL_NAMES = tuple(name for name, option in _OPTIONS.items() if option.is_internal)
#: Names that messages show to users.
SHOWN_NAMES = (
    "path",
    *(name for name, option in _OPTIONS.items() if option.is_listed and not option.is_internal),
)
#: Options that have a time.
TIME_NAMES = ("timestamp", "starting_timestamp", "ending_timestamp")
#: Other spellings, in lower case: names of other connectors and formats, and Spark's camel case.
SYNONYMS = {
    **{
        spelling.lower(): name for name, option in _OPTIONS.items() for spelling in option.spellings
    },
    **{
        name.replace("_", ""): name
        for name in (*FEED_NAMES, *StreamFields.declared, *UPSERT_NAMES, *OVERWRITE_NAMES)
        if "_" in name
    },
}


def _spellings(name: str) -> list[str]:
    """Return the names of an option, in lower case."""
    return [name, *(spelling for spelling, canon in SYNONYMS.items() if canon == name)]


#: Options of a query that choose the version or the columns of a table.
STATE_NAMES = tuple(
    spelling
    for name, option in (*ReadFields.declared.items(), *FeedFields.declared.items())
    if option.chooses in ("version", "columns")
    for spelling in _spellings(name)
)
#: Options of a read that choose rows and columns of a version, not the version.
VIEW_NAMES = tuple(
    spelling
    for name, option in ReadFields.declared.items()
    if option.chooses in ("columns", "rows")
    for spelling in _spellings(name)
)


def canonical(option: str) -> str:
    """Return the name of an option that is given in another case or spelling."""
    lower = option.lower()
    return SYNONYMS.get(lower, lower)


#: Tuning of other connectors, which changes no result, and what Spark itself adds to the options of
#: a stream.
IGNORED = frozenset(
    {"block_size", "index_cache_size", "metadata_cache_size", "executor_credential_refresh"}
    | {"pushdownfilters", "topn_push_down"}
    | {"use_queued_write_buffer", "queue_depth", "max_rows_per_group", "max_batch_bytes"}
    | {"checkpointlocation", "queryname"}
)
#: Names that are refused with advice of their own.
ADVICE = {
    "write_mode": "use the method .mode() of the writer",
    "mode": "use the method .mode() of the writer",
    "location": "use path",
    "catalog": "this source has no catalog; give the table's path",
    "as-of-timestamp": "use timestamp, with a time such as 2026-01-31T12:00:00+01:00",
    "as.of.instant": "use timestamp, with a time such as 2026-01-31T12:00:00+01:00",
}
#: Suffix of an option of one column, and the key of the field's metadata that it sets.
COLUMN_KEYS = {
    "arrow.fixed-size-list.size": "arrow.fixed-size-list.size",
    "arrow.float16": "arrow.float16",
    "arrow.large_var_char": "arrow.large_var_char",
    "arrow.large_var_binary": "arrow.large_var_binary",
    "arrow.fixed-size-binary.byte-width": "arrow.fixed-size-binary.byte-width",
    "arrow.json": "arrow.json",
    "lance.compression": "lance-encoding:compression",
    "lance.compression-level": "lance-encoding:compression-level",
    "lance.structural-encoding": "lance-encoding:structural-encoding",
    "lance.rle-threshold": "lance-encoding:rle-threshold",
    "lance.bss": "lance-encoding:bss",
    "lance.encoding": "lance-encoding:blob",
}
