"""What a user may write in `.option(...)`: parsed and checked here, once.

Spark hands over a case-insensitive mapping of strings, and for a table of its catalog mixes the
table's properties in, with each option once more below `option.`: there, what is no option is let
through. The names are those of other Lance connectors. What is no option, no setting of the store
and nothing that Spark adds by itself is refused with the nearest name there is. The same mapping
may serve reads and writes (a temporary view has one for both), so options of the other direction
are let through.
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

#: Tuning of other connectors that changes no result; nothing here needs it.
_IGNORED = frozenset(
    {"block_size", "index_cache_size", "metadata_cache_size", "executor_credential_refresh"}
    | {"pushdownfilters", "topn_push_down", "use_scalar_index"}
    | {"use_queued_write_buffer", "queue_depth", "max_rows_per_group", "max_batch_bytes"}
    | feed_names.OF_SPARK
)
#: The option by which `LanceTable` hands over a condition that Spark has resolved: a tree of
#: `filter_trees`, as JSON.
FILTER_TREE = "filter_tree"
#: What the columns that a query looks at have at most, as Spark has them, if it is answered while
#: it is planned.
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
#: Suffix of an option of one column, and the key of the field's metadata that it stands for.
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
    "option path is missing: give the table's folder or URI, as in "
    '.format("lance").load("/data/t.lance"). A table of Spark\'s catalog is found again if it was made without columns, by '
    "CREATE TABLE t USING lance LOCATION '...'"
)
NO_PATH_ON_WRITE = (
    "no path arrived: Spark tells a Python data source nothing about a table of its catalog on "
    "INSERT. Write with "
    'df.write.format("lance").mode("append").save(path), or INSERT into a view made by '
    "CREATE TEMPORARY VIEW v USING lance OPTIONS (path '...')"
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a read.

    Attributes
    ----------
    path : str
        Folder or URI of the table.
    version : int or None
        Version to read, detached ones too; the newest if neither version, tag nor timestamp is
        given.
    timestamp : datetime or None
        Read the version that was the newest at this time (UTC).
    branch : str or None
        Read this branch, "main" being the main one; the one that the path is the root of if None.
    tag : str or None
        Read the version that the tag names, which is on the branch if one is given.
    columns : tuple of str or None
        Columns to read, children of structs with dots; all if None.
    filter : str or None
        Predicate in Spark's SQL; only rows for which it is true are read.
    filter_tree : mapping or None
        Condition as `filter_trees` takes it; only rows for which it is true are read.
    timezone : str or None
        Of timestamps in `filter` that name none.
    push_filters : bool
        Whether filters that Spark itself pushes are taken; see `pushing` for what is wrong with
        them.
    driver_read_bytes : int
        What a query may look at to be answered while it is planned, without tasks; never if 0. See
        `found`.
    batch_size : int or None
        Rows of a batch at most; by the width of the rows if None.
    target_rows : int or None
        Rows of a Spark partition, about; by the size of the table if None.
    blob_handling : str or None
        What blob columns give, by the names that pylance has for it.
    with_row_id, with_row_address : bool
        Whether the columns _rowid and _rowaddr follow after the others.
    fragment_ids : tuple of int or None
        Fragments to read; all if None.
    whole_fragments : bool
        Whether all rows of a fragment are in one Spark partition.
    scan_metrics : bool
        Whether each task says on its log what it read.
    feed : mapping of str to str
        What is said of changes and streams; `feed_options` parses it.
    storage_options : mapping, not shown by `repr`
        Arguments of the fsspec file system.
    target_bases : TargetBases
        Which base paths data files go to, of changes by `LanceTable`; a read has none.
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
            An option is unknown, its value cannot be used, or two contradict one another.
        """
        with _naming_path(options):
            return cls._parse(options)

    @classmethod
    def _parse(cls, options: Mapping[str, str]) -> ReadOptions:
        parts = _sort(options)
        plain = parts.plain
        given = [name for name in ("version", "tag", "timestamp") if name in plain]
        if len(given) > 1:
            raise InvalidOptionError(f"options {' and '.join(given)} exclude one another: give one")
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
        Write to this branch, "main" being the main one; to the one that the path is the root of if
        None.
    data_storage_version : str or None
        Version of the data files; the table's own, or the stable one for a new table, if None.
    max_rows_per_file, max_bytes_per_file : int or None
        Where a data file ends and the next begins; the writer's default if None.
    enable_stable_row_ids : bool or None
        Whether a new table's row ids survive updates and compaction.
    large_var_types : bool
        Whether strings and binary values of a new table have 64-bit offsets.
    external_blob_mode : str
        What becomes of blobs given as URIs: "reference" or "ingest".
    allow_external_blob_outside_bases : bool
        Whether references to any URI are kept.
    blob_pack_file_size_threshold : int or None
        Bytes after which a file of packed blobs is closed; 1 GiB if None.
    commit_retries : int or None
        How often the commit starts again after other writers were faster.
    commit_message : str or None
        Kept with the transaction.
    initial_bases : tuple of BasePath
        Base paths of a new table.
    target_bases : TargetBases
        Which base paths data files go to.
    streaming_query_id : str or None
        Name of a stream that is written, in the transactions of its batches; the id of Spark's
        query if None.
    lookback_versions : int or None
        How many versions are searched for a stream's last batch.
    rules : mapping of str to str
        What is said of the rows and columns that there are; `write_rules` parses it.
    column_metadata : mapping of str to mapping of str to str
        By column in lower case, what the options say about it, as keys and values of the field's
        metadata.
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
            An option is unknown, its value cannot be used, or it asks to write what can only be
            read.
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
                    f"option {name} belongs to reading: a write goes to all columns of the newest "
                    "version; leave it out"
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
    every = {given.lower() for given in options}
    of_catalog = "provider" in every
    for given, value in options.items():
        name = _SAME.get(given.lower(), given.lower())
        if name == "path":
            path = value
        elif name == "paths":
            path = _only_path(value)
        elif name in READ_NAMES or name in _WRITE or name == "use_large_var_types":
            if plain.setdefault(name, value) != value:
                raise InvalidOptionError(
                    f"option {name} is given twice, under two names, with two values: give one"
                )
        elif name == "storage_options":
            store.update(json_object(value))
        elif name == BASE_STORE_PARAMS:
            store.update(with_base_params(store, json_object(value, name)))
        elif prefixed := _STORAGE_PREFIX.fullmatch(given):
            store[prefixed["name"]] = value
        elif column := _COLUMN_OPTION.fullmatch(given):
            key = column["key"].lower()
            said = columns.setdefault(column["column"].lower(), {})
            said[COLUMN_KEYS[key]] = _blob_mark(given, value) if key == "lance.encoding" else value
        elif name in storage_options.KNOWN:
            store[name] = value
        elif of_catalog and (name.startswith("option.") or f"option.{name}" not in every):
            continue
        elif name not in _IGNORED:
            raise InvalidOptionError(_unknown(given))
    if path is not None and not path.strip():
        raise InvalidOptionError("option path is empty: give the table's folder or URI")
    return _Parts(path, plain, columns, storage_options.checked(store, path))


def _unknown(name: str) -> str:
    import difflib

    if name.lower() in _ELSEWHERE:
        return f"option {name} is not one of this source: {_ELSEWHERE[name.lower()]}"
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
        f"unknown option {name}; there are "
        f"{', '.join(known[: 1 + len(READ_NAMES) + len(_WRITE)])}, and settings of the "
        f"store under storage_options.<name>"
    )


def _driver_read_bytes(plain: Mapping[str, str]) -> int:
    given = whole("driver_read_bytes", plain, least=0)
    return DEFAULT_DRIVER_READ_BYTES if given is None else given


def _blob_mark(name: str, text: str) -> str:
    if text.strip().lower() != "blob":
        raise InvalidOptionError(f"option {name}: the only encoding is blob, not {shown(text)}")
    return "true"


def _rules(plain: Mapping[str, str]) -> dict[str, str]:
    result = {name: plain[name] for name in overwrite_names.RULE_NAMES if name in plain}
    # Of timestamps in the condition.
    return {**result, "timezone": plain["timezone"]} if result and "timezone" in plain else result


def _only_path(text: str) -> str:
    paths = json_list(text)
    if paths is None or len(paths) != 1 or not isinstance(paths[0], str):
        raise InvalidOptionError(
            "load() takes the path of one table: read several one by one, and union the DataFrames"
        )
    return paths[0]


def _naming_path(options: Mapping[str, str]) -> AbstractContextManager[None]:
    """Put the path among some options before the messages of errors; see `naming`."""
    paths = [value for name, value in options.items() if name.lower() == "path" and value]
    return naming(parse_uri(paths[0]).display) if paths else nullcontext()
