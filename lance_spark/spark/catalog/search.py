"""The table function `lance_search`: a full-text search of a table by name or path."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import InvalidInputError
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS
from lance_spark.scan.text.query_json import query_of_json, query_to_json
from lance_spark.spark.catalog.names import entry_of, options_of
from lance_spark.spark.catalog.tables import opened
from lance_spark.spark.options.names import FULL_TEXT_LIMIT
from lance_spark.spark.options.options import ReadOptions

#: Number of rows by default, as in other connectors.
DEFAULT_LIMIT = 10
_MAX_ROWS = 2**31 - 1
#: Other names of parameters, which other connectors have.
_SYNONYMS = {"search_query": "query", "num_results": "limit", "k": "limit"}
_POSITIONAL = ("table", "query", "limit")
#: The type of each parameter, and how errors call it.
_TYPES: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "table": (str, "a string"),
    "query": (str, "a string"),
    "limit": (int, "a number of rows"),
    "search_columns": (list, "an array of names"),
    "columns": (list, "an array of names"),
    "filter": (str, "a string"),
    "prefilter": (bool, "true or false"),
    "offset": (int, "a number of rows"),
    "version": ((int, str), "a version, a tag or a branch"),
    "branch": (str, "a string"),
    "fast_search": (bool, "true or false"),
    "with_row_id": (bool, "true or false"),
    "with_row_address": (bool, "true or false"),
}


def load_search(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns and options of a search.

    Parameters
    ----------
    arguments : mapping
        The name of the table; ``function``, the name of the function; and its arguments as
        ``positional``, a list, and ``named``.

    Returns
    -------
    dict
        ``schema`` and ``options`` of the read; ``limit`` (None for all rows) and ``offset``;
        ``where``, a filter of the rows after that; and ``drops_address``, whether the caller does
        not want the column of row addresses.

    Raises
    ------
    TableNotFoundError, VersionNotFoundError, InvalidInputError, InvalidOptionError
    """
    from lance_spark.spark.read.reader import open_table, visible_schema
    from lance_spark.spark.types.mapping import to_spark_schema

    function = arguments["function"]
    values = _values(function, arguments["positional"], arguments["named"])
    options = _table_options(function, arguments, values)
    limit, offset = values.get("limit", DEFAULT_LIMIT), values.get("offset", 0)
    options["full_text_query"] = _query(function, values)
    if limit is not None:
        if offset + limit > _MAX_ROWS:
            raise InvalidInputError(f"{function}: limit and offset must be at most {_MAX_ROWS}")
        options[FULL_TEXT_LIMIT] = str(offset + limit)
    elif offset:
        raise InvalidInputError(f"{function}: offset needs a limit")
    columns = values.get("columns")
    if columns is not None:
        options["columns"] = json.dumps(columns)
    for name in ("fast_search", "with_row_id"):
        if values.get(name):
            options[name] = "true"
    options["with_row_address"] = "true"
    is_prefilter = values.get("prefilter", True)
    if "filter" in values and is_prefilter:
        options["filter"] = values["filter"]
    parsed = ReadOptions.parse(options)
    dataset: Dataset = open_table(parsed)
    _check(dataset, parsed, options["full_text_query"])
    return {
        "schema": to_spark_schema(visible_schema(dataset, parsed)).json(),
        "options": options,
        "limit": limit,
        "offset": offset,
        "where": None if is_prefilter else values.get("filter"),
        "drops_address": not (
            values.get("with_row_address") or ROW_ADDRESS.name in (columns or ())
        ),
    }


def _check(dataset: Dataset, options: ReadOptions, query: str) -> None:
    """Raise the errors of arguments: Spark shows errors of a planned scan with a traceback."""
    from lance_spark.dataset.full_text import parsed_query
    from lance_spark.spark.read.planning import known_columns
    from lance_spark.spark.read.reader import option_filter

    if options.filter is not None:
        option_filter(known_columns(dataset), options)
    parsed_query(dataset._table, query_of_json(query))


def _values(function: str, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by the names of the parameters; None is left out, but as the limit."""
    if len(positional) > len(_POSITIONAL):
        raise InvalidInputError(
            f"{function}: arguments after {', '.join(_POSITIONAL)} must have names, such as "
            "columns => array('id')"
        )
    pairs = [*zip(_POSITIONAL, positional, strict=False)]
    pairs += [(_SYNONYMS.get(name.lower(), name.lower()), value) for name, value in named.items()]
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name not in _TYPES:
            raise InvalidInputError(
                f"{function} has no parameter {name}; it has {', '.join(_TYPES)}"
            )
        if name in values:
            raise InvalidInputError(f"{function}: argument {name} is given twice; remove one")
        if value is not None:
            _check_type(function, name, value)
        values[name] = value
    for name in ("table", "query"):
        if values.get(name) is None:
            raise InvalidInputError(f"{function}: argument {name} is missing")
    return {name: value for name, value in values.items() if value is not None or name == "limit"}


def _check_type(function: str, name: str, value: Any) -> None:
    dtype, expected = _TYPES[name]
    is_right = isinstance(value, dtype) and (dtype is bool or not isinstance(value, bool))
    if dtype is int:
        is_right = is_right and value >= 0
    if dtype is list:
        is_right = is_right and all(isinstance(item, str) for item in value)
    if not is_right:
        raise InvalidInputError(f"{function}: {name} must be {expected}, not {value!r}")


def _query(function: str, values: Mapping[str, Any]) -> str:
    query = query_of_json(values["query"])
    columns = values.get("search_columns")
    if columns is not None:
        if not isinstance(query, str):
            raise InvalidInputError(
                f"{function}: search_columns are for a query of words; a query in JSON names its "
                "columns"
            )
        query = {"query": query, "columns": columns}
    return query_to_json(query)


def _table_options(
    function: str, arguments: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    entry = entry_of(function, arguments)
    options = dict(options_of(entry))
    if "branch" in values:
        options["branch"] = values["branch"]
    if "version" in values:
        version = str(values["version"])
        if "branch" in values and version.isdecimal():
            options["version"] = version
        else:
            _, reference = opened(entry, version, None)
            options |= reference
    return options
