"""Arguments of the table functions of searches, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lance_spark.errors import InvalidInputError
from lance_spark.keywords import declared_by
from lance_spark.scan.search_keywords import VectorIndexKeywords
from lance_spark.spark.options.declared import SearchReadKeywords


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
