"""All options of reads and writes by Spark: names, types, defaults, and what they do.

The classes that parse the options inherit from these classes: `read.ReadOptions`,
`feed.FeedOptions`, `write.WriteOptions`, `overwrite.OverwriteOptions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any, TypedDict

from lance_spark.keywords import Keyword
from lance_spark.scan.search_keywords import IndexSearchKeywords
from lance_spark.spark.options.values import (
    Option,
    Options,
    as_it_is,
    base_paths,
    choice,
    column_names,
    declares,
    file_version,
    filter_tree,
    flag,
    fragment_ids,
    json_object,
    json_of,
    keyword_option,
    non_blank,
    number,
    option,
    zone,
)
from lance_spark.table.bases import TargetBases
from lance_spark.table.paths import BasePath

#: Bytes, as Spark has them, of the columns that a query may look at to be answered on the driver.
DEFAULT_DRIVER_READ_BYTES = 128 * 1024 * 1024
#: The bytes, as of other binary columns, so that a query that writes its rows has them.
DEFAULT_BLOB_HANDLING = "all_binary"
#: The value of `partition_overwrite_mode` for partitions.
DYNAMIC = "dynamic"
_UINT64_MAX = 2**64 - 1


class TableKeywords(TypedDict, total=False):
    """Options of a read that say which table `LanceTable.forPath` returns."""

    version: Annotated[
        int | str | None, Keyword("The version, or the tag of one: the table is then read-only.")
    ]
    tag: Annotated[str | None, Keyword("The tag of the version: the table is then read-only.")]
    timestamp: Annotated[
        str | datetime | None,
        Keyword("The version is the newest of that time: the table is then read-only."),
    ]
    branch: Annotated[str | None, Keyword("The branch; by default the main branch.")]
    target_bases: Annotated[
        str | Sequence[str] | None,
        Keyword("Base paths of the data files that changes write, by name or path, in turn."),
    ]
    target_all_bases: Annotated[
        bool | None,
        Keyword("Whether changes write to the table and all base paths, or to base paths only."),
    ]


class RowKeywords(TypedDict, total=False):
    """Options of a read that are arguments of `LanceTable.toDF`, too."""

    filter: Annotated[
        str | None, Keyword("Predicate in Spark's SQL; only rows for which it is true are read.")
    ]
    with_row_id: Annotated[bool, Keyword("Whether to add the column ``_rowid``.", False)]
    with_row_address: Annotated[bool, Keyword("Whether to add the column ``_rowaddr``.", False)]


class SearchReadKeywords(RowKeywords, IndexSearchKeywords, total=False):
    """Options of a read that are arguments of searches, too: of `LanceTable`, and in SQL."""

    prefilter: Annotated[
        bool,
        Keyword(
            "Whether `filter` chooses the rows that are searched, or among the rows that the "
            "search finds; then it can only name columns that are returned.",
            True,
        ),
    ]
    fresh: Annotated[
        bool,
        Keyword(
            "Whether rows of the MemWAL of the table are searched, too. They have no row ids, and "
            "null as addresses. Of equally good rows, they are last, in any order.",
            False,
        ),
    ]


@declares
@dataclass(frozen=True, kw_only=True)
class TargetFields(Options):
    """Base paths that new data files go to."""

    target_base_names: tuple[str, ...] | None = option(
        column_names,
        "names or paths of [base paths](../howto/several-places.md), with commas between or as a "
        "JSON list: new data files go to them, in turn. The path of the table means the table "
        "itself",
        name="target_bases",
    )
    target_all_bases: bool | None = option(
        flag,
        "`true`: new data files go to the table and all its base paths, in turn; `false`: to all "
        "base paths",
    )

    def __post_init__(self) -> None:
        # Refuses both options at once.
        _ = self.target_bases

    @property
    def target_bases(self) -> TargetBases:
        """Base paths that new data files go to. Reads ignore them; changes of a table do not."""
        return TargetBases(self.target_base_names, self.target_all_bases)


@declares
@dataclass(frozen=True, kw_only=True)
class ReadFields(TargetFields):
    """Options of a read."""

    version: int | None = option(
        number(maximum=_UINT64_MAX),
        "read this version, or the version that a tag names",
        spellings=("versionAsOf", "snapshot-id"),
        chooses="version",
    )
    tag: str | None = option(non_blank, "read the version that the tag names", chooses="version")
    branch: str | None = option(
        non_blank,
        "read this branch: its newest version, or the version that `version` or `timestamp` names; "
        "`main` is the main branch",
        chooses="version",
    )
    timestamp: datetime | None = option(
        as_it_is,
        "read the version that was the newest at that time: `2026-01-31T12:00:00+01:00`, or "
        "`2026-01-31 12:00:00` in the zone of `timezone` or else of the session. In a session "
        "without `lance_spark.enable`, whose zone is not known, a time needs an offset or "
        "`timezone`",
        spellings=("timestampAsOf", "asof"),
        chooses="version",
    )
    columns: tuple[str, ...] | None = option(
        column_names,
        "names with commas between, or a JSON list; `point.x` is a child of a struct, and a name "
        "with a comma stands in backticks. Only these are read",
        chooses="columns",
    )
    filter: str | None = option(
        non_blank,
        "a [predicate](predicates.md) as in `WHERE`: only rows for which it is true, with Spark's "
        "three truth values and its NaN",
    )
    full_text_query: str | None = option(
        as_it_is,
        "words, or a query in JSON: only rows whose text matches, with the column `_score`; see "
        "[search text](../howto/full-text-search.md#the-option-of-a-read). Excludes `fragment_ids` "
        "and `whole_fragments`",
        spellings=("fullTextQuery",),
        chooses="columns",
        for_streams=False,
    )
    nearest: Mapping[str, Any] | None = option(
        json_object('such as {"column": "vector", "q": [1.0, 0.5], "k": 10}'),
        "a [vector search](../howto/vector-search.md#search-by-spark) in JSON, with pylance's "
        "keys: only the nearest rows, with the column `_distance`. Excludes `fragment_ids`, "
        "`whole_fragments` and `full_text_query`",
        chooses="columns",
        for_streams=False,
    )
    prefilter: bool = keyword_option(
        SearchReadKeywords,
        "prefilter",
        flag,
        "whether `filter` decides which rows a vector search searches; `true` by default. "
        "Otherwise it chooses among the rows that the search finds",
    )
    approximate_nearest: bool = option(
        flag,
        "whether an index may answer [`ORDER BY` of a "
        "distance](../howto/vector-search.md#order-by-a-distance) with `LIMIT`; `false` by default",
        False,
    )
    nearest_shares: bool = option(
        flag,
        "whether each task of a vector search may return as many rows as are wanted; `LanceTable` "
        "passes it to its own reads",
        False,
        is_listed=False,
    )
    fast_search: bool = keyword_option(IndexSearchKeywords, "fast_search", flag)
    full_text_limit: int | None = option(
        number(0),
        "how many rows each task returns of a full-text query at most; `LanceTable` passes it to "
        "its own reads",
        is_listed=False,
    )
    timezone: str | None = option(
        zone,
        "the zone of timestamps in `filter` and of times in options that name none; with "
        "[push-down](../explanation/push-down.md) the session's by default",
    )
    filter_tree: Mapping[str, Any] | None = option(
        filter_tree,
        "a condition that Spark has resolved, as JSON; `LanceTable` passes it to its own reads",
        is_listed=False,
    )
    push_filters: bool = option(
        flag,
        "whether the reader accepts filters that Spark pushes by itself when "
        "`spark.sql.python.filterPushdown.enabled` is true; `false` by default, because Spark then "
        "answers other queries over the same DataFrame with them. "
        "[Push-down](../explanation/push-down.md) needs neither",
        False,
    )
    driver_read_bytes: int = option(
        number(0),
        "the largest size in Spark of the columns that all scans of a query read while it is "
        "planned, without tasks: 128 MiB by default, never if 0; at most 1 MiB for a query of "
        "several tables. Only with "
        "[push-down](../explanation/push-down.md#small-queries)",
        DEFAULT_DRIVER_READ_BYTES,
    )
    batch_size: int | None = option(
        number(maximum=2**31 - 1),
        "rows of a batch at most, 65,536 by default; wide rows come in smaller batches",
    )
    with_row_id: bool = keyword_option(
        RowKeywords,
        "with_row_id",
        flag,
        "adds the column `_rowid`. It, `_rowaddr`, `_rowoffset`, `_row_created_at_version`, "
        "`_row_last_updated_at_version` and `_fragid` can also be named in `columns` or in the "
        "schema, see [row ids](../explanation/row-ids.md)",
        chooses="columns",
    )
    with_row_address: bool = keyword_option(
        RowKeywords, "with_row_address", flag, chooses="columns"
    )
    scan_metrics: bool = option(
        flag,
        "each task logs what it read, skipped and filtered (stderr, in Spark's UI below "
        '"Executors"): `numFragmentsScanned`, `numRowsScanned`, `numBytesRead`, `numIops` and '
        "others; `false` by default. `Dataset.explain` reports it before a scan",
        False,
    )
    blob_handling: str = option(
        choice("all_binary", "blobs_descriptions", "all_descriptions", "none"),
        "what [blob columns](../howto/blobs.md) give: `all_binary` (the bytes; the default), "
        "`blobs_descriptions` (where the bytes are) or `none` (they are left out)",
        DEFAULT_BLOB_HANDLING,
        chooses="columns",
    )
    fragment_ids: tuple[int, ...] | None = option(
        fragment_ids,
        "only rows of these fragments: `3,7-9`",
        for_streams=False,
    )
    whole_fragments: bool = option(
        flag,
        "whether all rows of a fragment are in one Spark partition, in their order; `false` by "
        "default",
        False,
        for_streams=False,
    )
    use_scalar_index: bool = option(
        flag, "whether [indexes](../howto/indexes.md) rule out rows; `true` by default", True
    )
    fresh: bool | None = option(
        flag,
        "`true`: the read also returns the rows of the table's [MemWAL](../howto/mem-wal.md#read) "
        "that are not in the table yet. Without this option it leaves them out, and warns if there "
        "are any; with `false` it does not warn. Excludes a version, tag or timestamp, and "
        "`fragment_ids`",
        chooses="nothing",
        for_streams=False,
    )
    target_rows_per_partition: int | None = option(
        number(),
        "about how many rows a Spark partition has; by default what makes up to 128 MiB of files "
        "(more where that would be more than 16,384 tasks), at least some tenths of a second of "
        "work, and a task for each processor of Spark (without push-down: two for each of the "
        "driver's machine)",
    )


@declares
@dataclass(frozen=True, kw_only=True)
class FeedFields(Options):
    """Options of change feeds and of streams that read."""

    read_change_feed: bool = option(
        flag,
        "read inserted, updated and deleted rows, by `spark.read` or `spark.readStream`",
        False,
        camel_case=True,
        spellings=("readChangeData",),
        chooses="columns",
    )
    starting_version: int | None = option(
        number(),
        "the first version that is reported. A change feed by `spark.read` needs this option or "
        "`startingTimestamp`; a stream without them begins with all rows of the newest version",
        camel_case=True,
    )
    starting_timestamp: datetime | None = option(
        as_it_is,
        "the first version of that time or later is the first that is reported; a time is written "
        "as for `timestamp`",
        camel_case=True,
    )
    ending_version: int | None = option(
        number(),
        "the last version of a change feed; not for streams",
        camel_case=True,
        chooses="version",
    )
    ending_timestamp: datetime | None = option(
        as_it_is,
        "the last version of that time or before is the last of a change feed; not for streams",
        camel_case=True,
        chooses="version",
    )
    max_fragments_per_trigger: int | None = option(
        number(),
        "the most fragments that a batch of a stream reads. From Spark 4.2 on",
        camel_case=True,
    )
    max_bytes_per_trigger: int | None = option(
        number(),
        "the most bytes of files that a batch of a stream reads, but at least one fragment. From "
        "Spark 4.2 on",
        camel_case=True,
    )
    skip_change_commits: bool = option(
        flag,
        "a stream of rows passes over versions that changed rows, which are an error otherwise",
        False,
        camel_case=True,
    )


@declares
@dataclass(frozen=True, kw_only=True)
class WriteFields(TargetFields):
    """Options of a write."""

    data_storage_version: str | None = option(
        file_version,
        "version of the data files: `2.0`, `2.1`, `2.2` or `stable` (2.2), the default for new "
        "tables; `0.1` or `legacy` for clients that read nothing newer, [with few "
        "nulls](types.md#what-files-of-older-versions-cannot-store). An append keeps the table's",
        spellings=("file_format_version",),
    )
    max_rows_per_file: int | None = option(
        number(),
        "rows after which a new file begins; 1,048,576 by default",
        spellings=("max_row_per_file",),
    )
    max_bytes_per_file: int | None = option(
        number(), "bytes after which a new file begins; 90 GiB by default"
    )
    checked_constraints: Mapping[str, str] | None = option(
        json_of,
        "the conditions that the plan of the write checks, by the names of the constraints",
        is_internal=True,
    )
    enable_stable_row_ids: bool | None = option(
        flag,
        "whether the rows of a new table [keep their ids](../explanation/row-ids.md) when they "
        "move",
    )
    large_var_types: bool = option(
        flag,
        "whether strings and binary values of a new table have 64-bit offsets; see "
        "[types](types.md#vectors-and-other-choices-on-writing)",
        False,
        name="use_large_var_types",
    )
    external_blob_mode: str = option(
        choice("reference", "ingest"),
        "what becomes of blobs that are given as URIs: `reference`, the default, or `ingest`",
        "reference",
    )
    allow_external_blob_outside_bases: bool = option(
        flag,
        "whether references may name objects outside the table's base paths; `false` by default",
        False,
    )
    blob_pack_file_size_threshold: int | None = option(
        number(), "bytes of a file that blobs share, at most; 1 GiB by default"
    )
    branch: str | None = option(non_blank, "write to this branch, which must exist")
    commit_message: str | None = option(as_it_is, "a text that is kept with the version")
    commit_retries: int | None = option(
        number(0),
        "how often the commit starts again after other writers were faster; 20 by default",
    )
    initial_bases: tuple[BasePath, ...] = option(
        base_paths,
        'base paths of a new table: a JSON list such as `[{"path": "s3://archive/orders", "name": '
        '"cold"}]`, with `is_dataset_root` and `id` if wanted. A table that exists must have them '
        "already",
        (),
    )


@declares
@dataclass(frozen=True, kw_only=True)
class StreamFields(Options):
    """Options of streams that write."""

    streaming_query_id: str | None = option(
        non_blank,
        "the name of a query that writes a stream, in the transactions of its batches; by default "
        "the id in its checkpoint",
        camel_case=True,
    )
    lookback_versions: int | None = option(
        number(),
        "how many versions are searched for the last batch of a query that writes; 1,000 by "
        "default",
        name="lance.streaming.dedupe.lookback.versions",
    )


@declares
@dataclass(frozen=True, kw_only=True)
class UpsertFields(Options):
    """Options of streams of upserts."""

    upsert: bool = option(
        flag, "`true`: a stream replaces rows of the same key, by the MemWAL of the table", False
    )
    upsert_mode: str | None = option(
        choice("sstable", "log"),
        "what each shard gets for a batch of upserts: `sstable` (default) or `log`, a WAL entry",
    )
    sequence_column: str | None = option(
        non_blank,
        "of rows of a batch with the same key, the one with the greatest value counts; the column "
        "need not be one of the table",
    )
    delete_column: str | None = option(
        non_blank,
        "a column of booleans: rows whose keys are deleted; it need not be one of the table",
    )


@declares
@dataclass(frozen=True, kw_only=True)
class OverwriteFields(Options):
    """Options of partial overwrites, of schema merging, and of writes that are made once."""

    merge_schema: bool = option(
        flag,
        "an append may have columns and fields of structs that the table does not have: they are "
        "added in the same version, and are null in existing rows. Structs may lack fields that "
        "can be null",
        False,
        camel_case=True,
    )
    overwrite_schema: bool | None = option(
        flag,
        "`false`: an overwrite of all rows keeps the columns of the table, and refuses a DataFrame "
        "with other columns, as in Delta. `true`, or without the option: it takes the columns of "
        "the DataFrame",
        camel_case=True,
    )
    replace_where: str | None = option(
        non_blank,
        'with `.mode("overwrite")`: [only the rows that meet this '
        "predicate](../howto/append-and-overwrite.md#replace-the-rows-that-meet-a-predicate) are "
        "replaced",
        camel_case=True,
    )
    partition_overwrite_mode: str | None = option(
        choice("static", DYNAMIC),
        'with `.mode("overwrite")`: `dynamic` replaces [the rows with the same '
        "values](../howto/append-and-overwrite.md#replace-the-rows-of-some-partitions) of the "
        "columns of `partitionBy` as rows of the DataFrame, `static` all rows. Without the option, "
        "the session setting `spark.sql.sources.partitionOverwriteMode` counts",
        camel_case=True,
    )
    partition_by: tuple[str, ...] = option(
        column_names,
        "names of columns for `partitionOverwriteMode`; without it, the table property "
        "`partitionBy` counts",
        (),
        camel_case=True,
    )
    txn_app_id: str | None = option(
        non_blank,
        "who writes: a write of `txnVersion` that the table has already is [left "
        "out](../howto/append-and-overwrite.md#idempotent-writes)",
        camel_case=True,
    )
    txn_version: int | None = option(
        number(0), "a number that grows with the writes of `txnAppId`", camel_case=True
    )
    # The classes in the JVM set the others, and no user.
    session_settings: Any = option(
        json_of, "the settings of the session that `replaceWhere` is parsed with", is_internal=True
    )
    replaces: str | None = option(
        as_it_is,
        'what an overwrite of a table of the catalog replaces: "all", "where" or "partitions"',
        is_internal=True,
    )
    replace_where_forms: list[dict[str, Any]] = option(
        json_of, "the condition of the rows to replace, as filters", (), is_internal=True
    )
    new_table: str | None = option(
        as_it_is, "the properties of the table that a statement creates", is_internal=True
    )
    must_create: bool = option(
        flag,
        "whether a statement or a save mode refuses a table that exists",
        False,
        is_internal=True,
    )
    must_exist: bool = option(
        flag, "whether a write by name refuses a table that was dropped", False, is_internal=True
    )
    rows_read: str | None = option(
        as_it_is,
        "the version that the query of an overwrite has read of the table itself",
        is_internal=True,
    )
    session_overwrite_mode: str | None = option(
        as_it_is,
        "the value of `spark.sql.sources.partitionOverwriteMode` in the session",
        is_internal=True,
    )
    static_partitions: Mapping[str, dict[str, Any]] = option(
        json_of,
        "the columns to which an INSERT OVERWRITE gives values in its PARTITION clause, each with "
        "its condition",
        None,
        is_internal=True,
    )
    replace_by: list[tuple[str, bool]] = option(
        json_of,
        "the columns by which an INSERT ... REPLACE finds the rows to replace, each with whether "
        "null equals null",
        (),
        is_internal=True,
    )
    query_metadata: Mapping[str, str] | None = option(
        json_of,
        "the metadata of the columns of a query, before Spark's optimizer, as JSON texts",
        is_internal=True,
    )
    opened_version: str | None = option(
        as_it_is,
        "the version that the step before an append has read (`write.opened`)",
        is_internal=True,
    )


# --------------------------------------------------------------------------------------------------
# Names of the options of reads and writes, other spellings, and advice for refused names.

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
TIME_NAMES = tuple(
    item.name
    for owner in (ReadFields, FeedFields)
    for item in fields(owner)
    if str(item.type).startswith("datetime")
)
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


#: Spellings of the option that makes a read a change feed.
CHANGE_FEED_NAMES = tuple(_spellings("read_change_feed"))
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
#: All names of options that have a time.
TIME_SPELLINGS = tuple(spelling for name in TIME_NAMES for spelling in _spellings(name))


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
