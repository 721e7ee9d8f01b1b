"""The table functions of searches: of a table by name or path, by text, by vectors, or by both.

| function | rows |
| --- | --- |
| `lance_search` | whose text matches, with `_score` |
| `lance_vector_search` | whose vectors are the nearest ones, with `_distance` |
| `lance_hybrid_search` | of both, with `_distance`, `_score` and `_relevance_score` |

Other connectors call them the same without `lance_`, and have the same parameters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lance_spark.errors import InvalidInputError
from lance_spark.indexes.text.queries import query_of_json, query_to_json
from lance_spark.keywords import declared_by
from lance_spark.scan.fragment.row_meta import DISTANCE, QUERY_INDEX, ROW_ADDRESS, ROW_ID, SCORE
from lance_spark.scan.search_keywords import VectorIndexKeywords
from lance_spark.spark.catalog.names import entry_of, options_of
from lance_spark.spark.catalog.tables import opened
from lance_spark.spark.options.declared import FULL_TEXT_LIMIT, NEAREST_SHARES, SearchReadKeywords
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.read.searches import (
    DEFAULT_RRF_K,
    RELEVANCE,
    Hybrid,
    RowMatch,
    Step,
    last_steps,
    nearest_steps,
    num_candidates,
    text_steps,
)

# --------------------------------------------------------------------------------------------------
# Arguments of the table functions of searches, checked.


class ArgumentType(NamedTuple):
    """The values that a parameter takes.

    - `text`: What errors call them.
    - `has`: Whether a value is one of them.
    """

    text: str
    has: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Signature:
    """A table function.

    - `positional`: Parameters whose arguments need no names.
    - `nullable`: Parameters for which NULL has a meaning. Elsewhere NULL is the default.
    """

    positional: tuple[str, ...]
    required: tuple[str, ...]
    parameters: Mapping[str, ArgumentType]
    nullable: tuple[str, ...] = ("limit",)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_vector(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_number, value))


_STRING = ArgumentType("a string", lambda value: isinstance(value, str))
_ROWS = ArgumentType("a number of rows", _is_count)
_COUNT = ArgumentType("a whole number", _is_count)
_NUMBER = ArgumentType("a number", _is_number)
_FLAG = ArgumentType("true or false", lambda value: isinstance(value, bool))
_NAMES = ArgumentType(
    "an array of names",
    lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
)
_VERSION = ArgumentType(
    "a version, a tag or a branch",
    lambda value: isinstance(value, int | str) and not isinstance(value, bool),
)
_VECTOR = ArgumentType(
    "an array of numbers, or an array of such arrays",
    lambda value: (
        _is_vector(value)
        or (isinstance(value, list) and bool(value) and all(map(_is_vector, value)))
    ),
)
#: Other names of parameters, which other connectors have.
_SYNONYMS = {
    "search_query": "query",
    "num_results": "limit",
    "k": "limit",
    "metric": "distance_type",
    "metric_type": "distance_type",
    "num_candidates": "candidates",
    "candidate_count": "candidates",
}
#: Types of parameters by the types of the keywords of `LanceTable`.
_TYPES = {"bool": _FLAG, "str | None": _STRING, "int | None": _COUNT}
_OF_READS = {name: _TYPES[item.type] for name, item in declared_by(SearchReadKeywords).items()}
#: Parameters that are options of a read, and add to it what they name.
READ_FLAGS = tuple(
    name for name, item in declared_by(SearchReadKeywords).items() if item.keyword.default is False
)
#: Parameters that are keys of `nearest`.
NEAREST_KEYS = tuple(declared_by(VectorIndexKeywords))
_SHARED = {
    "columns": _NAMES,
    "offset": _ROWS,
    "version": _VERSION,
    "branch": _STRING,
    **_OF_READS,
}
_OF_TEXT = {"query": _STRING, "limit": _ROWS, "search_columns": _NAMES}
_OF_VECTORS = {
    "query_vector": _VECTOR,
    "limit": _ROWS,
    "vector_column": _STRING,
    "distance_type": _STRING,
    **dict.fromkeys(NEAREST_KEYS, _COUNT),
    "lower_bound": _NUMBER,
    "upper_bound": _NUMBER,
    "bypass_vector_index": _FLAG,
}
TEXT = Signature(
    ("table", "query", "limit"),
    ("table", "query"),
    {"table": _STRING, **_OF_TEXT, **_SHARED},
)
VECTORS = Signature(
    ("table", "query_vector", "limit"),
    ("table", "query_vector"),
    {"table": _STRING, **_OF_VECTORS, **_SHARED},
    nullable=(),
)
HYBRID = Signature(
    ("table", "query_vector", "query", "limit"),
    ("table", "query_vector", "query"),
    {
        "table": _STRING,
        **_OF_VECTORS,
        **_OF_TEXT,
        "candidates": _ROWS,
        "rrf_k": _NUMBER,
        **_SHARED,
    },
    nullable=(),
)


def values_of(
    signature: Signature, function: str, positional: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by the names of the parameters.

    - `function`: The name that the call has.

    Raises InvalidInputError.
    """
    if len(positional) > len(signature.positional):
        raise InvalidInputError(
            f"{function}: arguments after {', '.join(signature.positional)} must have names, such "
            "as columns => array('id')"
        )
    pairs = [*zip(signature.positional, positional, strict=False)]
    pairs += [(_SYNONYMS.get(name.lower(), name.lower()), value) for name, value in named.items()]
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name not in signature.parameters:
            raise InvalidInputError(
                f"{function} has no parameter {name}; it has {', '.join(signature.parameters)}"
            )
        if name in values:
            raise InvalidInputError(f"{function}: argument {name} is given twice; remove one")
        expected = signature.parameters[name]
        if value is not None and not expected.has(value):
            raise InvalidInputError(f"{function}: {name} must be {expected.text}, not {value!r}")
        values[name] = value
    for name in signature.required:
        if values.get(name) is None:
            raise InvalidInputError(f"{function}: argument {name} is missing")
    return {
        name: value
        for name, value in values.items()
        if value is not None or name in signature.nullable
    }


# --------------------------------------------------------------------------------------------------
# The table functions of searches: of a table by name or path, by text, by vectors, or by both.

#: Number of rows by default, as in other connectors.
DEFAULT_LIMIT = 10
#: Name of the column of vectors by default, as in other connectors.
DEFAULT_COLUMN = "vector"
_MAX_ROWS = 2**31 - 1
_FUNCTIONS = {"search": TEXT, "vector_search": VECTORS, "hybrid_search": HYBRID}
#: Arguments of a search by one vector.
_NOT_OF_ROWS = ("offset", *READ_FLAGS, "lower_bound", "upper_bound")


def load_search(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a search reads, and what Spark does with the rows.

    Parameters
    ----------
    arguments : mapping
        The name of the table; ``function``, the name of the function; and its arguments as
        ``positional``, a list, and ``named``; ``is_lateral``: whether the vector depends on other
        rows, with which Spark joins the search.

    Returns
    -------
    dict
        ``searches``: one or two mappings with ``schema`` and ``options`` of the read, ``steps``
        (`search_steps`) and ``alias``; ``join``, the condition of a full outer join of two; and
        ``steps`` after that. ``join_arguments`` are the arguments of `nearest_join.join_nearest`.

    Raises
    ------
    TableNotFoundError, VersionNotFoundError, InvalidInputError, InvalidOptionError
    """
    function = arguments["function"]
    signature = _FUNCTIONS[function.removeprefix("lance_")]
    values = values_of(signature, function, arguments["positional"], arguments["named"])
    options = _table_options(function, arguments, values)
    search = _SearchCall(function, signature, values, options)
    if arguments.get("is_lateral"):
        return search.of_rows(options)
    return search.both() if signature is HYBRID else search.single()


class _SearchCall:
    """A call of a function."""

    def __init__(
        self,
        function: str,
        signature: Signature,
        values: Mapping[str, Any],
        options: dict[str, Any],
    ) -> None:
        self._function = function
        self._signature = signature
        self._values = values
        self._offset: int = values.get("offset", 0)
        self._limit: int | None = values.get("limit", DEFAULT_LIMIT)
        if self._limit is None and self._offset:
            raise InvalidInputError(f"{function}: offset needs a limit")
        if self._limit is not None and self._offset + self._limit > _MAX_ROWS:
            raise InvalidInputError(f"{function}: limit and offset must be at most {_MAX_ROWS}")
        columns = values.get("columns")
        self._columns = None if columns == ["*"] else columns
        self._is_prefilter = values.get("prefilter", True)
        self._is_fresh: bool = values.get("fresh", False)
        self._options = options | self._shared_options()

    def single(self) -> dict[str, Any]:
        """Return the reply of a search by text or by vectors."""
        count = None if self._limit is None else self._limit + self._offset
        is_text = self._signature is TEXT
        search = self._texts(count) if is_text else self._nearest(count)
        added = ROW_ADDRESS.name if is_text else self._ties
        if self._offset:
            search["steps"].append(("offset", self._offset))
        return {"searches": [search], "steps": self._last(self._values.get("filter"), added)}

    def of_rows(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reply of a search by the vectors of other rows.

        - `options`: Options of the table alone.
        """
        from lance_spark.indexes.vectors.columns import VectorType
        from lance_spark.spark.read.reader import open_table

        values = self._values
        for name in _NOT_OF_ROWS:
            if values.get(name):
                raise InvalidInputError(
                    f"{self._function}: {name} applies to searches by one vector, not by the "
                    "vectors of other rows; remove it"
                )
        if not self._is_prefilter and "filter" in values:
            raise InvalidInputError(
                f"{self._function}: prefilter must be true in a search by the vectors of other "
                "rows; put the condition into WHERE"
            )
        column = values.get("vector_column", DEFAULT_COLUMN)
        table = open_table(ReadOptions.parse(options))._table
        dimension = VectorType.of(table.schema.path(column)).dimension
        # The columns of a search do not depend on the vector.
        self._values = {**values, "query_vector": [0] * dimension}
        reply = self.single()
        names = self._columns or reply["searches"][0]["names"]
        nearest = {name: values[name] for name in NEAREST_KEYS if name in values}
        if values.get("bypass_vector_index"):
            nearest["use_index"] = False
        join = {
            "options": dict(options),
            "column": column,
            "columns": [name for name in names if name not in (DISTANCE.name, ROW_ID.name)],
            "k": self._limit,
            "metric": values.get("distance_type"),
            "nearest": nearest,
            "filter": values.get("filter"),
        }
        return {**reply, "join_arguments": join}

    def both(self) -> dict[str, Any]:
        """Return the reply of a hybrid search."""
        assert self._limit is not None
        count = self._limit + self._offset
        number = num_candidates(self._values.get("candidates"), count)
        match = self._match()
        hybrid = Hybrid("rrf", self._values.get("rrf_k", DEFAULT_RRF_K), match=match)
        searches = self._nearest(number), self._texts(number)
        for search, part in zip(searches, hybrid.parts, strict=True):
            if not self._is_prefilter and "filter" in self._values:
                search["steps"].append(("where", self._values["filter"]))
            search["steps"].append(("select", ["*", part]))
        names = [name for name in searches[1].pop("names") if name != SCORE.name]
        steps: list[Step] = [("select", hybrid.columns(names)), *match.last_steps(count)]
        if self._offset:
            steps.append(("offset", self._offset))
        return {
            "searches": searches,
            "join": match.condition,
            "steps": [*steps, *self._last(None, ROW_ADDRESS.name)],
        }

    def _last(self, where: str | None, added: str) -> list[Step]:
        names = [*(self._columns or ())]
        for name, field in (("with_row_id", ROW_ID), ("with_row_address", ROW_ADDRESS)):
            if self._values.get(name):
                names.append(field.name)
        return last_steps(None if self._is_prefilter else where, added, names)

    @property
    def _ties(self) -> str:
        """The column that orders rows with equal distances. Fresh reads have no row ids."""
        return ROW_ADDRESS.name if self._is_fresh else ROW_ID.name

    def _match(self) -> RowMatch:
        """Return how rows of two searches are matched. Both read the columns for it."""
        if not self._is_fresh:
            return RowMatch()
        from lance_spark.spark.read.reader import open_table

        table = open_table(ReadOptions.parse(self._options))._table
        columns = self._options.get("columns")
        names = None if columns is None else json.loads(columns)
        match = RowMatch.by_key(table.schema, names, table.store.display)
        if match.columns is not None:
            self._options["columns"] = json.dumps(match.columns)
        return match

    def _shared_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self._columns is not None:
            computed = (
                () if self._signature is not HYBRID else (DISTANCE.name, SCORE.name, RELEVANCE)
            )
            options["columns"] = json.dumps(
                [name for name in self._columns if name not in computed]
            )
        for name in READ_FLAGS:
            if self._values.get(name):
                options[name] = "true"
        if "filter" in self._values and self._is_prefilter:
            options["filter"] = self._values["filter"]
        return options

    def _texts(self, limit: int | None) -> dict[str, Any]:
        query = _text_query(self._function, self._values)
        options = {**self._options, "full_text_query": query, "with_row_address": "true"}
        if limit is not None:
            options[FULL_TEXT_LIMIT] = str(limit)
        return {"steps": text_steps(limit), "alias": "texts", **_described(options)}

    def _nearest(self, k: int | None) -> dict[str, Any]:
        # Only a search of texts can return all rows.
        assert k is not None
        from lance_spark.indexes.vectors.query import parse_nearest

        values = self._values
        nearest: dict[str, Any] = {
            "column": values.get("vector_column", DEFAULT_COLUMN),
            "q": values["query_vector"],
            "k": k,
        }
        nearest |= {name: values[name] for name in NEAREST_KEYS if name in values}
        if "distance_type" in values:
            nearest["metric"] = values["distance_type"]
        if values.get("bypass_vector_index"):
            nearest["use_index"] = False
        bounds = [values.get("lower_bound"), values.get("upper_bound")]
        if bounds != [None, None]:
            nearest["distance_range"] = bounds
        try:
            parse_nearest(nearest)
        except InvalidInputError as error:
            raise InvalidInputError(f"{self._function}: {error}") from None
        options = {**self._options, "nearest": json.dumps(nearest), NEAREST_SHARES: "true"}
        if not self._is_fresh:
            options["with_row_id"] = "true"
        if self._is_fresh or self._signature is HYBRID:
            options["with_row_address"] = "true"
        described = _described(options)
        is_batch = described["names"][0] == QUERY_INDEX.name
        if is_batch and (self._offset or self._signature is HYBRID):
            raise InvalidInputError(
                f"{self._function}: query_vector must be one vector, not an array of vectors, "
                + ("with an offset" if self._offset else "in a hybrid search")
            )
        steps = nearest_steps(k, is_batch=is_batch, ties=(self._ties,))
        return {"steps": steps, "alias": "vectors", **described}


def _described(options: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a read. Raise the errors of its arguments.

    Spark shows errors of a planned scan with a traceback.
    """
    from lance_spark.dataset.queries import parsed_query
    from lance_spark.spark.read.planning import known_columns
    from lance_spark.spark.read.projection import visible_schema
    from lance_spark.spark.read.reader import open_table, option_filter
    from lance_spark.spark.types.mapping import to_spark_schema

    parsed = ReadOptions.parse(options)
    dataset = open_table(parsed)
    if parsed.filter is not None:
        option_filter(known_columns(dataset), parsed)
    if parsed.full_text_query is not None:
        parsed_query(dataset._table, query_of_json(parsed.full_text_query))
    if parsed.nearest is not None:
        from lance_spark.indexes.vectors.query import parse_nearest

        dataset._reader.check_nearest(parse_nearest(parsed.nearest))
    schema = to_spark_schema(visible_schema(dataset, parsed))
    return {"schema": schema.json(), "options": options, "names": schema.names}


def _text_query(function: str, values: Mapping[str, Any]) -> str:
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
    options: dict[str, Any] = dict(options_of(entry))
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
