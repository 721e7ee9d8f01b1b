"""Options of reads and writes, parsed and checked once from the mapping that Spark passes.

| given | treated as |
| --- | --- |
| an option of this direction, or a setting of the store | parsed |
| an option of the other direction | ignored: a temporary view has one mapping for both |
| a property of a table of Spark's catalog | ignored: Spark repeats only options as `option.NAME` |
| any other name | refused, with the nearest known name |

Other Lance connectors use the same names (`names`). Spark compares them without regard to case.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lance_spark.errors import InvalidOptionError, naming
from lance_spark.spark.options import values
from lance_spark.spark.options.classified import classify
from lance_spark.spark.options.names import (
    FEED_NAMES,
    FILTER_TREE,
    FULL_TEXT_LIMIT,
    LARGE_VAR_TYPES,
    LOOKBACK,
    NEAREST_SHARES,
    OUTSIDE_BASES,
    OVERWRITE_NAMES,
    UPSERT_NAMES,
)
from lance_spark.spark.options.values import (
    choice,
    column_names,
    file_version,
    filter_tree,
    flag,
    fragment_ids,
    json_object,
    moment,
    non_blank,
    timezone_of,
    whole_number,
)
from lance_spark.storage.options.fsspec_options import parse_flag
from lance_spark.storage.uri import parse_uri
from lance_spark.table.bases import TargetBases
from lance_spark.table.paths import BasePath

#: Bytes, as Spark has them, of the columns that a query may look at to be answered on the driver.
DEFAULT_DRIVER_READ_BYTES = 128 * 1024 * 1024
#: What reads of blob columns return, by pylance's names.
_BLOB_HANDLING = ("all_binary", "blobs_descriptions", "all_descriptions", "none")
#: The bytes, as of other binary columns, so that a query that writes its rows has them.
DEFAULT_BLOB_HANDLING = "all_binary"
_BLOB_MODES = ("reference", "ingest")
_UINT64_MAX = 2**64 - 1

NO_PATH = (
    "option path is missing: set it to the folder or URI of the table, as in "
    '.format("lance").load("/data/t.lance"). Spark\'s catalog keeps the path of a table that was '
    "created without columns, by CREATE TABLE t USING lance LOCATION '...'"
)
NO_PATH_ON_WRITE = (
    "option path is missing: set it to the folder or URI of the table, as in "
    'df.write.format("lance").mode("append").save("/data/t.lance"). For a table of a catalog, use '
    "saveAsTable, insertInto or writeTo, in a session with lance_spark.enable: without it, Spark "
    "does not pass the location of a table of its catalog"
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a read.

    Attributes
    ----------
    version : int or None
        Version to read, which may be a detached one. The newest version if version, tag and
        timestamp are None.
    timestamp : datetime or None
        Read the version that was the newest at this time (UTC).
    branch : str or None
        Branch to read; "main" is the main branch. None for the branch that the path is the root of.
    tag : str or None
        Read the version that the tag names. It must be on the branch, if a branch is given.
    columns : tuple of str or None
        Columns to read, children of structs with dots; all columns if None.
    filter : str or None
        Predicate in Spark's SQL. Only rows for which it is true are read.
    filter_tree : mapping or None
        The same for a predicate in the form of `filter_trees`.
    full_text_query : str or None
        Words, or a query in JSON (`query_json`): only rows whose text matches are read, with the
        column _score.
    nearest : mapping or None
        A vector search, by pylance's keys (`parse_nearest`): only the nearest rows are read, with
        the column _distance.
    nearest_shares : bool
        Whether each task of a vector search may return as many rows as the search has.
    prefilter : bool
        Whether `filter` chooses rows before a vector search, or among the rows that it finds.
    approximate_nearest : bool
        Whether an index may answer ORDER BY of a distance with LIMIT, with other rows.
    fast_search : bool
        Whether a search leaves out rows that no index covers.
    full_text_limit : int or None
        Most rows of each task of a full-text query.
    timezone : str or None
        Time zone of the timestamps in `filter` that have none.
    push_filters : bool
        Whether to take filters that Spark itself pushes; `spark_filters` describes the risk.
    driver_read_bytes : int
        Bytes that a query may look at to be answered on the driver (`driver_read`); 0 for never.
    batch_size : int or None
        Maximum number of rows of a batch; chosen by the width of the rows if None.
    target_rows : int or None
        Approximate number of rows of a Spark partition; chosen by the size of the table if None.
    blob_handling : str
        What reads of blob columns return, by pylance's names.
    with_row_id, with_row_address : bool
        Whether the columns _rowid and _rowaddr follow the other columns.
    fragment_ids : tuple of int or None
        Fragments to read; all fragments if None.
    whole_fragments : bool
        Whether all rows of a fragment are in one Spark partition.
    use_scalar_index : bool
        Whether indexes rule out rows.
    fresh : bool or None
        Whether to read the rows of the table's MemWAL, too. If None, they are not read, and a
        warning says that there are some.
    scan_metrics : bool
        Whether each task prints to its log what it read.
    feed : mapping of str to str
        Options of change feeds and streams, which `rare_options` parses.
    storage_options : mapping, not shown by `repr`
        Arguments of the fsspec file system.
    target_bases : TargetBases
        Base paths that data files of changes by `LanceTable` go to. Reads ignore it.
    """

    path: str
    version: int | None = None
    timestamp: datetime | None = None
    branch: str | None = None
    tag: str | None = None
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    filter_tree: Mapping[str, Any] | None = None
    full_text_query: str | None = None
    nearest: Mapping[str, Any] | None = None
    nearest_shares: bool = False
    prefilter: bool = True
    approximate_nearest: bool = False
    fast_search: bool = False
    full_text_limit: int | None = None
    timezone: str | None = None
    push_filters: bool = False
    driver_read_bytes: int = DEFAULT_DRIVER_READ_BYTES
    batch_size: int | None = None
    target_rows: int | None = None
    blob_handling: str = DEFAULT_BLOB_HANDLING
    with_row_id: bool = False
    with_row_address: bool = False
    fragment_ids: tuple[int, ...] | None = None
    whole_fragments: bool = False
    use_scalar_index: bool = True
    fresh: bool | None = None
    scan_metrics: bool = False
    feed: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    target_bases: TargetBases = field(default_factory=TargetBases)

    @property
    def is_search(self) -> bool:
        """Whether rows are found by a full-text query, or by their vectors."""
        return self.full_text_query is not None or self.nearest is not None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse Spark's options.

        Raises
        ------
        InvalidOptionError
            An option is unknown, its value is invalid, or two options exclude each other.
        """
        with _naming_path(options):
            return cls._parse(options)

    @classmethod
    def _parse(cls, options: Mapping[str, str]) -> ReadOptions:
        parts = classify(options)
        plain = _with_tag(parts.plain)
        references = [name for name in ("version", "tag", "timestamp") if name in plain]
        if len(references) > 1:
            raise InvalidOptionError(
                f"options {' and '.join(references)} exclude each other: set only one"
            )
        if parts.path is None:
            raise InvalidOptionError(NO_PATH)
        if "nearest" in plain and "full_text_query" in plain:
            raise InvalidOptionError(
                "options nearest and full_text_query exclude each other: set only one, or use "
                "LanceTable.hybridSearch"
            )
        return cls(
            path=parts.path,
            version=whole_number("version", plain, maximum=_UINT64_MAX),
            timestamp=moment(plain.get("timestamp"), timezone_of(plain)),
            branch=non_blank("branch", plain),
            tag=non_blank("tag", plain),
            columns=column_names("columns", plain.get("columns")),
            filter=non_blank("filter", plain),
            filter_tree=filter_tree(plain.get(FILTER_TREE)),
            full_text_query=plain.get("full_text_query"),
            nearest=json_object(plain["nearest"], "nearest") if "nearest" in plain else None,
            nearest_shares=flag(NEAREST_SHARES, plain),
            prefilter=flag("prefilter", plain, default=True),
            approximate_nearest=flag("approximate_nearest", plain),
            fast_search=flag("fast_search", plain),
            full_text_limit=whole_number(FULL_TEXT_LIMIT, plain, minimum=0),
            timezone=timezone_of(plain),
            push_filters=flag("push_filters", plain),
            driver_read_bytes=_driver_read_bytes(plain),
            batch_size=whole_number("batch_size", plain, maximum=2**31 - 1),
            target_rows=whole_number("target_rows_per_partition", plain),
            blob_handling=choice("blob_handling", plain, _BLOB_HANDLING) or DEFAULT_BLOB_HANDLING,
            with_row_id=flag("with_row_id", plain),
            with_row_address=flag("with_row_address", plain),
            fragment_ids=fragment_ids(plain.get("fragment_ids")),
            whole_fragments=flag("whole_fragments", plain),
            use_scalar_index=flag("use_scalar_index", plain, default=True),
            fresh=_fresh(plain),
            scan_metrics=flag("scan_metrics", plain),
            feed={name: plain[name] for name in FEED_NAMES if name in plain},
            storage_options=parts.storage,
            target_bases=values.target_bases(plain),
        )


def _with_tag(plain: dict[str, str]) -> dict[str, str]:
    """Return the options of a read with the tag, if the option version names one."""
    version = plain.get("version", "")
    if "tag" in plain or not any(character.isalpha() for character in version):
        return plain
    return {**{name: text for name, text in plain.items() if name != "version"}, "tag": version}


def _fresh(plain: Mapping[str, str]) -> bool | None:
    """Return whether a read includes the rows of a MemWAL; None if that is not given."""
    if "fresh" not in plain:
        return None
    fresh = flag("fresh", plain)
    others = ("version", "tag", "timestamp", "fragment_ids")
    for name in (*others, *FEED_NAMES) if fresh else ():
        if name in plain:
            raise InvalidOptionError(
                f"options fresh and {name} exclude each other: the rows of a MemWAL belong to the "
                "newest version, and are in no fragment; set only one"
            )
    return fresh


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a write.

    Attributes
    ----------
    branch : str or None
        Branch to write to; "main" is the main branch. None for the branch that the path is the root
        of.
    data_storage_version : str or None
        Version of the data files. If None, the table's own, or "stable" for a new table.
    max_rows_per_file, max_bytes_per_file : int or None
        When a data file is closed and the next one begun; the writer's default if None.
    enable_stable_row_ids : bool or None
        Whether the row ids of a new table survive updates and compaction.
    large_var_types : bool
        Whether strings and binary values of a new table have 64-bit offsets.
    external_blob_mode : str
        How blobs that are given as URIs are written: "reference" or "ingest".
    allow_external_blob_outside_bases : bool
        Whether references to any URI are kept.
    blob_pack_file_size_threshold : int or None
        Bytes after which a file of packed blobs is closed; 1 GiB if None.
    commit_retries : int or None
        Maximum number of times that the commit starts again after a conflict.
    commit_message : str or None
        Text that is kept with the transaction.
    target_bases : TargetBases
        Base paths that data files go to.
    streaming_query_id : str or None
        Name of the stream in the transactions of its batches; the id of Spark's query if None.
    lookback_versions : int or None
        Maximum number of versions that are searched for a stream's last batch.
    upsert : bool
        Whether a stream replaces rows of the same key, by the MemWAL of the table.
    upsert_mode : str or None
        What each shard gets for a batch: "sstable" or "log".
    sequence_column, delete_column : str or None
        Columns of a stream of upserts.
    overwrite : mapping of str to str
        Options of partial overwrites, schema merging and writes that are made once, which
        `rare_options` parses.
    column_metadata : mapping of str to mapping of str to str
        Field metadata that options set, by the column's name in lower case.
    storage_options : mapping, not shown by `repr`
        Arguments of the fsspec file system.
    """

    path: str
    branch: str | None = None
    data_storage_version: str | None = None
    max_rows_per_file: int | None = None
    max_bytes_per_file: int | None = None
    enable_stable_row_ids: bool | None = None
    large_var_types: bool = False
    external_blob_mode: str = "reference"
    allow_external_blob_outside_bases: bool = False
    blob_pack_file_size_threshold: int | None = None
    commit_retries: int | None = None
    commit_message: str | None = None
    initial_bases: tuple[BasePath, ...] = ()
    target_bases: TargetBases = field(default_factory=TargetBases)
    streaming_query_id: str | None = None
    lookback_versions: int | None = None
    upsert: bool = False
    upsert_mode: str | None = None
    sequence_column: str | None = None
    delete_column: str | None = None
    overwrite: Mapping[str, str] = field(default_factory=dict)
    column_metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Parse Spark's options.

        Raises
        ------
        InvalidOptionError
            An option is unknown or only for reads, or its value is invalid.
        """
        with _naming_path(options):
            return cls._parse(options)

    @classmethod
    def _parse(cls, options: Mapping[str, str]) -> WriteOptions:
        parts = classify(options)
        plain = parts.plain
        for name in ("version", "tag", "timestamp", "columns", "filter", FILTER_TREE):
            if name in plain:
                raise InvalidOptionError(
                    f"option {name} applies to reads only: a write goes to all columns of the "
                    "newest version; remove the option"
                )
        if parts.path is None:
            raise InvalidOptionError(NO_PATH_ON_WRITE)
        stable_row_ids = plain.get("enable_stable_row_ids")
        upsert = flag("upsert", plain)
        if not upsert and (of_upserts := [name for name in UPSERT_NAMES if name in plain]):
            raise InvalidOptionError(
                f"option {of_upserts[-1]} applies only to streams with the option upsert=true"
            )
        return cls(
            path=parts.path,
            branch=non_blank("branch", plain),
            data_storage_version=file_version(plain.get("data_storage_version")),
            max_rows_per_file=whole_number("max_rows_per_file", plain),
            max_bytes_per_file=whole_number("max_bytes_per_file", plain),
            enable_stable_row_ids=(
                None
                if stable_row_ids is None
                else parse_flag("enable_stable_row_ids", stable_row_ids)
            ),
            large_var_types=flag(LARGE_VAR_TYPES, plain),
            external_blob_mode=choice("external_blob_mode", plain, _BLOB_MODES) or "reference",
            allow_external_blob_outside_bases=flag(OUTSIDE_BASES, plain),
            blob_pack_file_size_threshold=whole_number("blob_pack_file_size_threshold", plain),
            commit_retries=whole_number("commit_retries", plain, minimum=0),
            commit_message=plain.get("commit_message"),
            initial_bases=values.initial_bases(plain),
            target_bases=values.target_bases(plain),
            streaming_query_id=non_blank("streaming_query_id", plain),
            lookback_versions=whole_number(LOOKBACK, plain),
            upsert=upsert,
            upsert_mode=choice("upsert_mode", plain, ("sstable", "log")),
            sequence_column=non_blank("sequence_column", plain),
            delete_column=non_blank("delete_column", plain),
            overwrite=_overwrite_options(plain),
            column_metadata=parts.columns,
            storage_options=parts.storage,
        )


def _driver_read_bytes(plain: Mapping[str, str]) -> int:
    value = whole_number("driver_read_bytes", plain, minimum=0)
    return DEFAULT_DRIVER_READ_BYTES if value is None else value


def _overwrite_options(plain: Mapping[str, str]) -> dict[str, str]:
    overwrite_options = {name: plain[name] for name in OVERWRITE_NAMES if name in plain}
    if overwrite_options and "timezone" in plain:
        # The time zone of timestamps in the condition.
        overwrite_options["timezone"] = plain["timezone"]
    return overwrite_options


def _naming_path(options: Mapping[str, str]) -> AbstractContextManager[None]:
    """Return a context that puts the table's path before the messages of errors (`naming`)."""
    paths = [value for name, value in options.items() if name.lower() == "path" and value]
    return naming(parse_uri(paths[0]).display) if paths else nullcontext()
