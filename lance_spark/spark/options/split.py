"""Options by what they are about: the path, the read or write, columns, or the store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from lance_spark.errors import InvalidOptionError, error_context
from lance_spark.spark.options import values
from lance_spark.spark.options.names import (
    ADVICE,
    COLUMN_KEYS,
    IGNORED,
    READ_NAMES,
    SHOWN_NAMES,
    SYNONYMS,
    WRITE_NAMES,
    canonical,
)
from lance_spark.spark.options.values import json_list, json_object, shown
from lance_spark.storage.options.base_paths import BASE_STORE_PARAMS, with_base_params
from lance_spark.storage.options.fsspec_options import KNOWN
from lance_spark.storage.uri import parse_uri

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
