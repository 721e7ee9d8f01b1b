"""Names of the options of reads and writes, other spellings, and advice for refused names.

Separate from the parsers of `rare_options`, so that most reads and writes do not import these.
"""

from __future__ import annotations

#: Change feeds and streams that read: which changes, and how much of them at a time.
FEED_NAMES = (
    "read_change_feed",
    "starting_version",
    "ending_version",
    "starting_timestamp",
    "ending_timestamp",
    "max_fragments_per_trigger",
    "max_bytes_per_trigger",
    "skip_change_commits",
)
#: A condition that Spark has resolved, as JSON (`filter_trees`). Only `LanceTable` sets it.
FILTER_TREE = "filter_tree"
#: Most rows that each task returns of a full-text search, with the greatest scores. Only
#: `LanceTable` sets it, and takes the first rows of all tasks.
FULL_TEXT_LIMIT = "full_text_limit"
#: Each task of a vector search may return as many rows as are wanted: those that set it, take the
#: first rows of all tasks.
NEAREST_SHARES = "nearest_shares"
READ_NAMES = (
    "version",
    "timestamp",
    "branch",
    "tag",
    "columns",
    "filter",
    FILTER_TREE,
    "full_text_query",
    "fast_search",
    FULL_TEXT_LIMIT,
    "nearest",
    NEAREST_SHARES,
    "prefilter",
    "approximate_nearest",
    "timezone",
    "push_filters",
    "driver_read_bytes",
    "batch_size",
    "target_rows_per_partition",
    "blob_handling",
    "with_row_id",
    "with_row_address",
    "fragment_ids",
    "whole_fragments",
    "use_scalar_index",
    "fresh",
    "scan_metrics",
    *FEED_NAMES,
)
#: Base paths of a new table, and base paths that data files go to.
BASE_PATH_NAMES = ("initial_bases", "target_bases", "target_all_bases")
LOOKBACK = "lance.streaming.dedupe.lookback.versions"
#: Whether a write by name refuses a table that was dropped.
MUST_EXIST = "must_exist"
#: The value of `spark.sql.sources.partitionOverwriteMode` in the session of an overwrite.
SESSION_MODE = "session_overwrite_mode"
#: The option, and the property of a table, that names the columns of partitions.
PARTITION_BY = "partition_by"
#: Options that the classes in the JVM set, and no user: the settings of the session that
#: `replace_where` is parsed with; what an overwrite of a table of the catalog replaces ("all",
#: "where", "partitions"), and its condition as forms; the properties of the table that a statement
#: creates (`new_table.NewTable`); whether a statement or a save mode refuses a table that exists;
#: whether a write by name refuses a table that was dropped; the version that the query of an
#: overwrite has read of the table itself; the session's mode of overwrites; the columns to which an
#: INSERT OVERWRITE gives values in its PARTITION clause; the columns by which an INSERT ... REPLACE
#: finds the rows to replace, each with whether null equals null; the metadata of the columns of a
#: query, before Spark's optimizer; the version that the step before an append has read
#: (`write.opened`).
INTERNAL_NAMES = (
    "session_settings",
    "replaces",
    "replace_where_forms",
    "new_table",
    "must_create",
    MUST_EXIST,
    "rows_read",
    SESSION_MODE,
    "static_partitions",
    "replace_by",
    "query_metadata",
    "opened_version",
)
#: Partial overwrites, schema merging and writes that are made once.
OVERWRITE_NAMES = (
    "merge_schema",
    "txn_app_id",
    "txn_version",
    "replace_where",
    "partition_overwrite_mode",
    PARTITION_BY,
    "overwrite_schema",
    *INTERNAL_NAMES,
)
#: Streams of upserts.
UPSERT_NAMES = ("upsert", "upsert_mode", "sequence_column", "delete_column")
OUTSIDE_BASES = "allow_external_blob_outside_bases"
WRITE_NAMES = (
    "data_storage_version",
    "max_rows_per_file",
    "max_bytes_per_file",
    "enable_stable_row_ids",
    "external_blob_mode",
    OUTSIDE_BASES,
    "blob_pack_file_size_threshold",
    "commit_retries",
    "commit_message",
    *BASE_PATH_NAMES,
    "streaming_query_id",
    LOOKBACK,
    *UPSERT_NAMES,
    *OVERWRITE_NAMES,
)
#: Names that messages show to users.
SHOWN_NAMES = tuple(
    name
    for name in ("path", *READ_NAMES, *WRITE_NAMES)
    if name not in (FILTER_TREE, FULL_TEXT_LIMIT, NEAREST_SHARES, *INTERNAL_NAMES)
)
LARGE_VAR_TYPES = "use_large_var_types"
#: Options that have a time.
TIME_NAMES = ("timestamp", "starting_timestamp", "ending_timestamp")
#: Other spellings, in lower case: names of other connectors and formats, and Spark's camel case.
SYNONYMS = {
    "versionasof": "version",
    "snapshot-id": "version",
    "timestampasof": "timestamp",
    "file_format_version": "data_storage_version",
    "max_row_per_file": "max_rows_per_file",
    "asof": "timestamp",
    "fulltextquery": "full_text_query",
    **{
        name.replace("_", ""): name
        for name in (*FEED_NAMES, "streaming_query_id", *UPSERT_NAMES, *OVERWRITE_NAMES)
    },
}


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
