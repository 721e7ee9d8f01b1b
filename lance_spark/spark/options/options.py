"""Parser of the options of reads and writes, `.option(...)` in Spark.

Spark passes a case-insensitive mapping of strings. The names are the names of other Lance
connectors. A name that is not an option, a storage option or an addition of Spark is an error that
suggests the nearest name. There are two exceptions:

- Reads ignore options of writes, and writes ignore most options of reads, because one mapping can
  serve both: a temporary view has one.
- For a table of its catalog, Spark adds the table's properties, and repeats each option with the
  prefix `option.`. There, unknown names are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lance_spark.errors import InvalidOptionError, naming
from lance_spark.spark.options import base_paths as base_path_options
from lance_spark.spark.options import feed_names, overwrite_names
from lance_spark.spark.options import storage as storage_options
from lance_spark.spark.options.values import (
    choice,
    column_names,
    file_version,
    filter_tree,
    flag,
    fragment_ids,
    json_list,
    json_object,
    moment,
    name_of,
    shown,
    timezone_of,
    whole,
)
from lance_spark.storage.options.base_paths import BASE_STORE_PARAMS, with_base_params
from lance_spark.storage.uri import parse_uri
from lance_spark.table.bases import TargetBases
from lance_spark.table.paths import BasePath

#: Tuning options of other connectors. They change no result, so they are accepted and ignored.
_IGNORED = frozenset(
    {"block_size", "index_cache_size", "metadata_cache_size", "executor_credential_refresh"}
    | {"pushdownfilters", "topn_push_down", "use_scalar_index"}
    | {"use_queued_write_buffer", "queue_depth", "max_rows_per_group", "max_batch_bytes"}
    | feed_names.OF_SPARK
)
#: The option with which `LanceTable` passes a condition that Spark has resolved: a tree of
#: `filter_trees`, as JSON.
FILTER_TREE = "filter_tree"
#: Upper bound of the bytes in Spark of the columns of a query that is answered during planning.
DEFAULT_DRIVER_READ_BYTES = 128 * 1024 * 1024
READ_NAMES = (
    "version",
    "timestamp",
    "branch",
    "tag",
    "columns",
    "filter",
    FILTER_TREE,
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
    "scan_metrics",
    *feed_names.FEED_NAMES,
)
_OUTSIDE = "allow_external_blob_outside_bases"
_WRITE = (
    "data_storage_version",
    "max_rows_per_file",
    "max_bytes_per_file",
    "enable_stable_row_ids",
    "external_blob_mode",
    _OUTSIDE,
    "blob_pack_file_size_threshold",
    "commit_retries",
    "commit_message",
    *base_path_options.NAMES,
    *feed_names.STREAM_NAMES,
    *overwrite_names.RULE_NAMES,
)
_SAME = {
    "file_format_version": "data_storage_version",
    "max_row_per_file": "max_rows_per_file",
    "asof": "timestamp",
    **feed_names.SAME,
    **overwrite_names.SAME,
}
_ELSEWHERE = {
    "nearest": "vector search is not in this release",
    "fulltextquery": "full-text search is not in this release",
    "write_mode": 'use .mode("append") or .mode("overwrite")',
    "mode": 'use .mode("append") or .mode("overwrite")',
    "location": "use path",
    "catalog": "this source has no catalog; give the table's path",
}
#: Suffix of an option for one column, and the metadata key of the field that it sets.
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
_COLUMN_OPTION = re.compile(
    rf"(?P<column>.+)\.(?P<key>{'|'.join(map(re.escape, COLUMN_KEYS))})", re.IGNORECASE
)
_STORAGE_PREFIX = re.compile(r"(?:storage_options|storage)\.(?P<name>.+)", re.IGNORECASE)
_BLOB_HANDLING = ("all_binary", "blobs_descriptions", "all_descriptions", "none")
_BLOB_MODES = ("reference", "ingest")
_UINT64_MAX = 2**64 - 1

NO_PATH = (
    "option path is missing: set it to the folder or URI of the table, as in "
    '.format("lance").load("/data/t.lance"). For a table of Spark\'s catalog, create it without '
    "columns, by CREATE TABLE t USING lance LOCATION '...'"
)
NO_PATH_ON_WRITE = (
    "option path is missing: Spark passes no path to a Python data source on INSERT INTO a table "
    'of its catalog. Write with df.write.format("lance").mode("append").save(path), or INSERT '
    "into a view made by CREATE TEMPORARY VIEW v USING lance OPTIONS (path '...')"
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a read.

    Attributes
    ----------
    path : str
        Folder or URI of the table.
    version : int or None
        Version to read; can be a detached version. The newest version if version, tag and
        timestamp are None.
    timestamp : datetime or None
        Read the version that was the newest at this time (UTC).
    branch : str or None
        Branch to read; "main" is the main branch. None: the branch whose root is the path.
    tag : str or None
        Read the version that the tag names. With a branch, the tag must be on it.
    columns : tuple of str or None
        Columns to read; a dot separates the names of nested fields. All columns if None.
    filter : str or None
        Spark SQL predicate; only rows for which it is true are read.
    filter_tree : mapping or None
        Condition as a tree of `filter_trees`; only rows for which it is true are read.
    timezone : str or None
        Time zone of timestamps in `filter` without one.
    push_filters : bool
        Whether to accept filters that Spark itself pushes; `spark_filters` describes the risk.
    driver_read_bytes : int
        Upper bound of the bytes of the columns of a query that is answered during planning,
        without tasks (`driver_read`). 0: always use tasks.
    batch_size : int or None
        Maximum rows of a batch; chosen by the width of the rows if None.
    target_rows : int or None
        Approximate rows of a Spark partition; chosen by the size of the table if None.
    blob_handling : str or None
        Form of blob columns, by the names of pylance.
    with_row_id, with_row_address : bool
        Whether to add the columns _rowid and _rowaddr after the others.
    fragment_ids : tuple of int or None
        Fragments to read; all if None.
    whole_fragments : bool
        Whether one Spark partition has all rows of a fragment.
    scan_metrics : bool
        Whether each task logs the counters of its read.
    feed : mapping of str to str
        Options of change feeds and streams, which `feed_options` parses.
    storage_options : mapping, not shown by `repr`
        Arguments of the fsspec file system.
    target_bases : TargetBases
        Base paths of new data files, for changes by `LanceTable`. Reads do not use it.
    """

    path: str
    version: int | None = None
    timestamp: datetime | None = None
    branch: str | None = None
    tag: str | None = None
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    filter_tree: Mapping[str, Any] | None = None
    timezone: str | None = None
    push_filters: bool = False
    driver_read_bytes: int = DEFAULT_DRIVER_READ_BYTES
    batch_size: int | None = None
    target_rows: int | None = None
    blob_handling: str | None = None
    with_row_id: bool = False
    with_row_address: bool = False
    fragment_ids: tuple[int, ...] | None = None
    whole_fragments: bool = False
    scan_metrics: bool = False
    feed: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    target_bases: TargetBases = field(default_factory=TargetBases)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse Spark's options.

        Raises
        ------
        InvalidOptionError
            An option is unknown, a value is not valid, or two options contradict each other.
        """
        with _naming_path(options):
            return cls._parse(options)

    @classmethod
    def _parse(cls, options: Mapping[str, str]) -> ReadOptions:
        parts = _sort(options)
        plain = parts.plain
        given = [name for name in ("version", "tag", "timestamp") if name in plain]
        if len(given) > 1:
            raise InvalidOptionError(
                f"options {' and '.join(given)} exclude each other: set only one"
            )
        if parts.path is None:
            raise InvalidOptionError(NO_PATH)
        return cls(
            path=parts.path,
            version=whole("version", plain, limit=_UINT64_MAX),
            timestamp=moment(plain.get("timestamp")),
            branch=name_of("branch", plain),
            tag=name_of("tag", plain),
            columns=column_names("columns", plain.get("columns")),
            filter=name_of("filter", plain),
            filter_tree=filter_tree(plain.get(FILTER_TREE)),
            timezone=timezone_of(plain),
            push_filters=flag("push_filters", plain),
            driver_read_bytes=_driver_read_bytes(plain),
            batch_size=whole("batch_size", plain, limit=2**31 - 1),
            target_rows=whole("target_rows_per_partition", plain),
            blob_handling=choice("blob_handling", plain, _BLOB_HANDLING),
            with_row_id=flag("with_row_id", plain),
            with_row_address=flag("with_row_address", plain),
            fragment_ids=fragment_ids(plain.get("fragment_ids")),
            whole_fragments=flag("whole_fragments", plain),
            scan_metrics=flag("scan_metrics", plain),
            feed={name: plain[name] for name in feed_names.FEED_NAMES if name in plain},
            storage_options=parts.storage,
            target_bases=base_path_options.target_bases(plain),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a write.

    Attributes
    ----------
    path : str
        Folder or URI of the table.
    branch : str or None
        Branch to write to; "main" is the main branch. None: the branch whose root is the path.
    data_storage_version : str or None
        File version of the data files. None: the file version of the table, or the stable one
        for a new table.
    max_rows_per_file, max_bytes_per_file : int or None
        Bounds of a data file; the default of the writer if None.
    enable_stable_row_ids : bool or None
        Whether a new table has stable row ids.
    large_var_types : bool
        Whether strings and binary values of a new table have 64-bit offsets.
    external_blob_mode : str
        Whether blobs given as URIs are kept as references ("reference") or copied ("ingest").
    allow_external_blob_outside_bases : bool
        Whether references to URIs outside the base paths are allowed.
    blob_pack_file_size_threshold : int or None
        Size in bytes at which a file of packed blobs is closed; 1 GiB if None.
    commit_retries : int or None
        Maximum number of retries of the commit after commits of other clients.
    commit_message : str or None
        Stored in the transaction.
    initial_bases : tuple of BasePath
        Base paths of a new table.
    target_bases : TargetBases
        Base paths of new data files.
    streaming_query_id : str or None
        Name of the stream in the transactions of its batches; the id of Spark's query if None.
    lookback_versions : int or None
        Number of versions to search for the last batch of the stream.
    rules : mapping of str to str
        Options that `overwrite_options` parses.
    column_metadata : mapping of str to mapping of str to str
        Metadata of fields from column options, by column name in lower case.
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
    rules: Mapping[str, str] = field(default_factory=dict)
    column_metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Parse Spark's options.

        Raises
        ------
        InvalidOptionError
            An option is unknown, a value is not valid, or an option applies to reads only.
        """
        with _naming_path(options):
            return cls._parse(options)

    @classmethod
    def _parse(cls, options: Mapping[str, str]) -> WriteOptions:
        parts = _sort(options)
        plain = parts.plain
        for name in ("version", "tag", "timestamp", "columns", "filter", FILTER_TREE):
            if name in plain:
                raise InvalidOptionError(
                    f"option {name} applies to reads only: a write adds to the newest version; "
                    "remove the option"
                )
        if parts.path is None:
            raise InvalidOptionError(NO_PATH_ON_WRITE)
        stable_row_ids = plain.get("enable_stable_row_ids")
        return cls(
            path=parts.path,
            branch=name_of("branch", plain),
            data_storage_version=file_version(plain.get("data_storage_version")),
            max_rows_per_file=whole("max_rows_per_file", plain),
            max_bytes_per_file=whole("max_bytes_per_file", plain),
            enable_stable_row_ids=(
                None
                if stable_row_ids is None
                else storage_options.parse_flag("enable_stable_row_ids", stable_row_ids)
            ),
            large_var_types=storage_options.parse_flag(
                "use_large_var_types", plain.get("use_large_var_types", "false")
            ),
            external_blob_mode=choice("external_blob_mode", plain, _BLOB_MODES) or "reference",
            allow_external_blob_outside_bases=storage_options.parse_flag(
                _OUTSIDE, plain.get(_OUTSIDE, "false")
            ),
            blob_pack_file_size_threshold=whole("blob_pack_file_size_threshold", plain),
            commit_retries=whole("commit_retries", plain, least=0),
            commit_message=plain.get("commit_message"),
            initial_bases=base_path_options.initial_bases(plain),
            target_bases=base_path_options.target_bases(plain),
            streaming_query_id=name_of("streaming_query_id", plain),
            lookback_versions=whole(feed_names.LOOKBACK, plain),
            rules=_rules(plain),
            column_metadata=parts.columns,
            storage_options=parts.storage,
        )


@dataclass(frozen=True, slots=True)
class _Parts:
    path: str | None
    plain: dict[str, str]
    columns: dict[str, dict[str, str]]
    storage: dict[str, Any]


def _sort(options: Mapping[str, str]) -> _Parts:
    plain: dict[str, str] = {}
    columns: dict[str, dict[str, str]] = {}
    store: dict[str, Any] = {}
    path: str | None = None
    names = {original.lower() for original in options}
    of_catalog = "provider" in names
    for original, value in options.items():
        name = _SAME.get(original.lower(), original.lower())
        if name == "path":
            path = value
        elif name == "paths":
            path = _only_path(value)
        elif name in READ_NAMES or name in _WRITE or name == "use_large_var_types":
            if plain.setdefault(name, value) != value:
                raise InvalidOptionError(
                    f"option {name} is set twice, with two names and two values: set only one"
                )
        elif name == "storage_options":
            store.update(json_object(value))
        elif name == BASE_STORE_PARAMS:
            store.update(with_base_params(store, json_object(value, name)))
        elif prefixed := _STORAGE_PREFIX.fullmatch(original):
            store[prefixed["name"]] = value
        elif column := _COLUMN_OPTION.fullmatch(original):
            key = column["key"].lower()
            metadata = columns.setdefault(column["column"].lower(), {})
            metadata[COLUMN_KEYS[key]] = (
                _blob_mark(original, value) if key == "lance.encoding" else value
            )
        elif name in storage_options.KNOWN:
            store[name] = value
        elif of_catalog and (name.startswith("option.") or f"option.{name}" not in names):
            continue
        elif name not in _IGNORED:
            raise InvalidOptionError(_unknown(original))
    if path is not None and not path.strip():
        raise InvalidOptionError("option path is empty: set it to the folder or URI of the table")
    return _Parts(path, plain, columns, storage_options.checked(store, path))


def _unknown(name: str) -> str:
    import difflib

    if name.lower() in _ELSEWHERE:
        return f"option {name} is not supported: {_ELSEWHERE[name.lower()]}"
    known = [
        "path",
        *READ_NAMES,
        *_WRITE,
        *_SAME,
        "use_large_var_types",
        "storage_options",
        BASE_STORE_PARAMS,
    ]
    known += sorted(storage_options.KNOWN)
    column, dot, rest = name.partition(".")
    if dot and rest.split(".")[0].lower() in ("arrow", "lance"):
        near = difflib.get_close_matches(rest.lower(), COLUMN_KEYS, 1, 0)
        return f"unknown option {name}; did you mean {column}.{near[0]}?"
    near = difflib.get_close_matches(name.lower(), known, 1, 0.5)
    if near:
        return f"unknown option {name}; did you mean {near[0]}?"
    return (
        f"unknown option {name}; options are "
        f"{', '.join(known[: 1 + len(READ_NAMES) + len(_WRITE)])}, and storage options with the "
        f"prefix storage_options."
    )


def _driver_read_bytes(plain: Mapping[str, str]) -> int:
    given = whole("driver_read_bytes", plain, least=0)
    return DEFAULT_DRIVER_READ_BYTES if given is None else given


def _blob_mark(name: str, text: str) -> str:
    if text.strip().lower() != "blob":
        raise InvalidOptionError(f"option {name} must be blob, not {shown(text)}")
    return "true"


def _rules(plain: Mapping[str, str]) -> dict[str, str]:
    result = {name: plain[name] for name in overwrite_names.RULE_NAMES if name in plain}
    # The condition can contain timestamps.
    return {**result, "timezone": plain["timezone"]} if result and "timezone" in plain else result


def _only_path(text: str) -> str:
    paths = json_list(text)
    if paths is None or len(paths) != 1 or not isinstance(paths[0], str):
        raise InvalidOptionError(
            "load() takes the path of one table: load each table alone, and union the DataFrames"
        )
    return paths[0]


def _naming_path(options: Mapping[str, str]) -> AbstractContextManager[None]:
    """Return a context that puts the path in the options before error messages (`naming`)."""
    paths = [value for name, value in options.items() if name.lower() == "path" and value]
    return naming(parse_uri(paths[0]).display) if paths else nullcontext()
