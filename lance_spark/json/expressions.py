"""Functions of JSON columns, with the meaning that they have in pylance.

| function | result |
| --- | --- |
| `json_get(js, key)` | the JSON value of a child or item, for other functions and ``IS NULL`` |
| `json_get_int`, `json_get_float`, `json_get_bool`, `json_get_string` | it as a value of SQL |
| `json_extract(js, path)` | the JSON text of the value at a path |
| `json_exists(js, path)` | whether there is a value at a path |
| `json_array_length(js, path)` | the number of items of an array |
| `json_array_contains(js, path, value)` | whether an array has an item |

Keys and paths are literals; `lance_spark.json.paths` describes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError
from lance_spark.json.paths import Key, Step, parse_path
from lance_spark.predicates.coercion import NoCommonTypeError
from lance_spark.predicates.conditions import Bound, ColumnBound
from lance_spark.predicates.expressions.node import JSON, Call, Document, Expression, Literal
from lance_spark.predicates.tree import Column
from lance_spark.predicates.typed_literals import Typed, is_text, type_name

#: The result of the kernel and its type for each function of a key, and of a path.
_OF_KEY: dict[str, tuple[str, pa.DataType]] = {
    "json_get_int": ("int", pa.int64()),
    "json_get_float": ("float", pa.float64()),
    "json_get_bool": ("bool", pa.bool_()),
    "json_get_string": ("string", pa.string()),
}
_OF_PATH: dict[str, tuple[str, pa.DataType]] = {
    "json_extract": ("text", pa.string()),
    "json_exists": ("exists", pa.bool_()),
    "json_array_length": ("length", pa.int64()),
    "json_array_contains": ("contains", pa.bool_()),
}


@dataclass(frozen=True, slots=True)
class JsonDocument(Document):
    """A JSON column, or the value that keys find in its documents: not a value of SQL."""

    column: Column
    keys: tuple[Step, ...] = ()

    @property
    def dtype(self) -> pa.DataType:
        """Raise an error: the value has no type of SQL."""
        raise InvalidInputError(
            f"filter on {str(self.column)!r}: json_get gives a JSON value, which only functions of "
            "JSON and IS NULL take; write json_get_string, json_get_int, json_get_float or "
            "json_get_bool"
        )

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the documents of the column, as the batch has them: JSONB or texts."""
        return self.column.documents(batch)

    def columns(self) -> Iterator[Column]:
        yield self.column

    def exists(self) -> Expression:
        """Return a value that is null if there is no such value."""
        return _call(self, "get", pa.bool_())


def json_function(name: str, document: object, args: Sequence[object]) -> Expression:
    """Return the result of a function of `FUNCTIONS`.

    - `document`: A JSON column, or the result of ``json_get``.
    - `args`: The other arguments.

    Raises NoCommonTypeError: an argument has the wrong type, is not a literal, or a path is not
    supported.
    """
    if isinstance(document, Column) and document.field.logical_type == "json":
        document = JsonDocument(document)
    if not isinstance(document, JsonDocument):
        raise NoCommonTypeError(f"{name} takes a JSON column, or the result of json_get")
    if len(args) != (2 if name == "json_array_contains" else 1):
        raise NoCommonTypeError(f"wrong number of arguments of {name}")
    texts = [_text(name, argument) for argument in args]
    result, dtype = _OF_KEY.get(name) or _OF_PATH.get(name) or ("get", pa.bool_())
    if None in texts:
        return Literal(Typed(None, dtype))
    text = str(texts[0])
    if name not in _OF_PATH:
        member = JsonDocument(document.column, (*document.keys, Key(text)))
        return member if name == "json_get" else _call(member, result, dtype)
    try:
        path = parse_path(text)
    except ValueError as error:
        raise NoCommonTypeError(str(error)) from None
    return _call(document, result, dtype, path, texts[1] if len(texts) > 1 else None)


def documents_of(value: Expression) -> ColumnBound | None:
    """Return an expression as the values that a JSON index can have; None if it has none.

    The bound of the result has no meaning.
    """
    if not isinstance(value, Call) or value.name != JSON:
        return None
    result, keys, _, _ = value.detail
    (column,) = value.columns()
    types = dict(_OF_KEY.values())
    if result not in types:
        return None
    return ColumnBound(column.field, Bound("==", None), (keys, types[result]))


def _call(
    document: JsonDocument,
    result: str,
    dtype: pa.DataType,
    path: tuple[Step, ...] = (),
    wanted: str | None = None,
) -> Expression:
    detail = (result, document.keys, path, wanted)
    return Call(JSON, (JsonDocument(document.column),), dtype, detail)


def _text(name: str, argument: object) -> str | None:
    """Return a literal as text; None for null."""
    if not isinstance(argument, Typed):
        raise NoCommonTypeError(f"keys, paths and values of {name} must be literals here")
    value, dtype = argument.value, argument.dtype
    if value is None:
        return None
    if is_text(dtype):
        return str(value)
    if pat.is_integer(dtype) or pat.is_boolean(dtype):
        return str(value).lower()
    raise NoCommonTypeError(f"{name} takes texts, not {type_name(dtype)}; write the text")


#: The function that binds a call, by name.
FUNCTIONS = dict.fromkeys(("json_get", *_OF_KEY, *_OF_PATH), json_function)
