"""The options of a read, parsed and checked once, and how it is split into tasks.

| given | treated as |
| --- | --- |
| an option of this direction, or a setting of the store | parsed |
| an option of the other direction | ignored: a temporary view has one mapping for both |
| a property of a table of Spark's catalog | ignored: Spark repeats only options as `option.NAME` |
| any other name | refused, with the nearest known name |

Other Lance connectors use the same names (`declared`). Spark compares them without regard to case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

from lance_spark.errors import InvalidOptionError, error_context
from lance_spark.keywords import declared_by
from lance_spark.scan.search_keywords import IndexSearchKeywords
from lance_spark.spark.options import values
from lance_spark.spark.options.declared import (
    ADVICE,
    COLUMN_KEYS,
    FEED_NAMES,
    IGNORED,
    READ_NAMES,
    SHOWN_NAMES,
    SYNONYMS,
    TIME_NAMES,
    WRITE_NAMES,
    ReadFields,
    canonical,
)
from lance_spark.spark.options.values import json_list, json_object, moment, parsed, shown
from lance_spark.storage.options import BASE_STORE_PARAMS, KNOWN, with_base_params
from lance_spark.storage.uri import parse_uri

# --------------------------------------------------------------------------------------------------
# Options by what they are about: the path, the read or write, columns, or the store.

_COLUMN_OPTION = re.compile(
    rf"(?P<column>.+)\.(?P<key>{'|'.join(map(re.escape, COLUMN_KEYS))})", re.IGNORECASE
)
_STORAGE_OPTIONS = json_object('such as {"endpoint": "http://localhost:9000"}')
_BASE_PARAMS = json_object("that maps the path of each base path to its storage options")
_STORAGE_PREFIX = re.compile(r"(?:storage_options|storage)\.(?P<name>.+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """Options by what they are about."""

    path: str | None
    plain: dict[str, str]
    columns: dict[str, dict[str, str]]
    storage: dict[str, Any]


def split_options(options: Mapping[str, str]) -> SplitOptions:
    """Sort options by what they are about, and refuse unknown ones.

    Raises InvalidOptionError: an option is unknown, or set twice with two values.
    """
    plain: dict[str, str] = {}
    columns: dict[str, dict[str, str]] = {}
    store: dict[str, Any] = {}
    path: str | None = None
    lower_names = {option.lower() for option in options}
    of_catalog = "provider" in lower_names
    for option, value in options.items():
        name = canonical(option)
        if name == "path":
            path = value
        elif name == "paths":
            path = _only_path(value)
        elif name in READ_NAMES or name in WRITE_NAMES:
            if plain.setdefault(name, value) != value:
                raise InvalidOptionError(
                    f"option {name} is set twice, with two names and two values: set only one"
                )
        elif name == "storage_options":
            store.update(_STORAGE_OPTIONS(name, value))
        elif name == BASE_STORE_PARAMS:
            store.update(with_base_params(store, _BASE_PARAMS(name, value)))
        elif prefixed := _STORAGE_PREFIX.fullmatch(option):
            store[prefixed["name"]] = value
        elif column := _COLUMN_OPTION.fullmatch(option):
            key = column["key"].lower()
            metadata = columns.setdefault(column["column"].lower(), {})
            metadata[COLUMN_KEYS[key]] = (
                _blob_mark(option, value) if key == "lance.encoding" else value
            )
        elif name in KNOWN:
            store[name] = value
        elif of_catalog and (name.startswith("option.") or f"option.{name}" not in lower_names):
            # A property of the table: Spark repeats only the table's options as `option.NAME`.
            continue
        elif name not in IGNORED:
            raise InvalidOptionError(_unknown(option))
    if path is not None and not path.strip():
        raise InvalidOptionError("option path is empty: set it to the folder or URI of the table")
    return SplitOptions(path, plain, columns, values.checked_storage(store, path))


def _unknown(name: str) -> str:
    import difflib

    if name.lower() in ADVICE:
        return f"option {name} is not an option of this source: {ADVICE[name.lower()]}"
    known = [*SHOWN_NAMES, *SYNONYMS, "storage_options", BASE_STORE_PARAMS]
    known += sorted(KNOWN)
    column, dot, suffix = name.partition(".")
    if dot and suffix.split(".")[0].lower() in ("arrow", "lance"):
        near = difflib.get_close_matches(suffix.lower(), COLUMN_KEYS, 1, 0)
        return f"unknown option {name}; did you mean {column}.{near[0]}?"
    near = difflib.get_close_matches(name.lower(), known, 1, 0.5)
    meant = f"did you mean {near[0]}? " if near else ""
    by_likeness = difflib.get_close_matches(name.lower(), SHOWN_NAMES, len(SHOWN_NAMES), 0)
    return (
        f"unknown option {name}; {meant}The options are, the most similar first, "
        f"{', '.join(by_likeness)}, and settings of the store as storage_options.<name>"
    )


def _blob_mark(name: str, text: str) -> str:
    if text.strip().lower() != "blob":
        raise InvalidOptionError(f"option {name} must be blob, not {shown(text)}")
    return "true"


def _only_path(text: str) -> str:
    paths = json_list(text)
    if paths is None or len(paths) != 1 or not isinstance(paths[0], str):
        raise InvalidOptionError(
            "load() takes the path of one table: read each table alone, and union the DataFrames"
        )
    return paths[0]


def naming_path(options: Mapping[str, str]) -> AbstractContextManager[None]:
    """Return a context that puts the table's path before messages of errors (`error_context`)."""
    paths = [value for name, value in options.items() if name.lower() == "path" and value]
    return error_context(parse_uri(paths[0]).display) if paths else nullcontext()


# --------------------------------------------------------------------------------------------------
# The options of a read, parsed and checked once from the mapping that Spark passes.

NO_PATH = (
    "option path is missing: set it to the folder or URI of the table, as in "
    '.format("lance").load("/data/t.lance"). Spark\'s catalog keeps the path of a table that was '
    "created without columns, by CREATE TABLE t USING lance LOCATION '...'"
)
_SEARCH_NAMES = tuple(declared_by(IndexSearchKeywords))


@dataclass(frozen=True)
class ReadOptions(ReadFields):
    """Options of a read.

    - `feed`: Options of change feeds and streams, which `FeedOptions` parses.
    - `storage_options` (mapping, not shown by `repr`): Arguments of the fsspec file system.
    """

    path: str
    feed: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def is_search(self) -> bool:
        """Whether rows are found by a full-text query, or by their vectors."""
        return self.full_text_query is not None or self.nearest is not None

    @property
    def search_keywords(self) -> IndexSearchKeywords:
        """The keywords of searches by indexes."""
        return cast(IndexSearchKeywords, {name: getattr(self, name) for name in _SEARCH_NAMES})

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse Spark's options.

        Raises InvalidOptionError: an option is unknown, its value is invalid, or two options
        exclude each other.
        """
        with naming_path(options):
            return cls._parse(options)

    @classmethod
    def _parse(cls, options: Mapping[str, str]) -> ReadOptions:
        parts = split_options(options)
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
                "LanceTable.hybrid_search"
            )
        values = parsed(ReadFields, plain)
        if "timestamp" in values:
            values["timestamp"] = moment(values["timestamp"], values.get("timezone"))
        if values.get("fresh"):
            _check_fresh(plain)
        return cls(
            parts.path,
            feed={name: plain[name] for name in FEED_NAMES if name in plain},
            storage_options=parts.storage,
            **values,
        )


def with_offsets(options: Mapping[str, str], zone: str | None) -> dict[str, str]:
    """Return options whose times have an offset.

    - `zone`: The zone of the session, for times without an offset if no option has a zone.
    """
    names = {option: SYNONYMS.get(option.lower(), option.lower()) for option in options}
    zones = [options[option] for option, name in names.items() if name == "timezone"]
    result = dict(options)
    for option, name in names.items():
        if name in TIME_NAMES:
            time = moment(options[option], zones[0] if zones else zone, option)
            result[option] = options[option] if time is None else time.isoformat()
    return result


def _with_tag(plain: dict[str, str]) -> dict[str, str]:
    """Return the options of a read with the tag, if the option version names one."""
    version = plain.get("version", "")
    if "tag" in plain or not any(character.isalpha() for character in version):
        return plain
    return {**{name: text for name, text in plain.items() if name != "version"}, "tag": version}


def _check_fresh(plain: Mapping[str, str]) -> None:
    """Check that no option is given that excludes the rows of a MemWAL."""
    for name in ("version", "tag", "timestamp", "fragment_ids", *FEED_NAMES):
        if name in plain:
            raise InvalidOptionError(
                f"options fresh and {name} exclude each other: the rows of a MemWAL belong to the "
                "newest version, and are in no fragment; set only one"
            )
