"""Functions of JSON documents, as pylance computes them.

Documents are JSONB, for which `json_vectors` computes most values, or texts. A text is parsed by
the json module, once for each different text of a batch. The steps of a path
(`lance_spark.scan.predicates.json_paths`) are then Python code for each document.

| result | of the value that is found | if nothing is found |
| --- | --- | --- |
| `int` | a number, rounded half away from zero; a boolean; a text that is a number | null |
| `float` | a number, a boolean, a text that is a number | null |
| `bool` | a boolean; the texts true, yes, false, no in any case of letters | null |
| `string` | a text, a number or a boolean | null |
| `get` | whether it is there | null |
| `text` | its JSON text | null |
| `exists` | true | false |
| `length` | the number of items, 0 for a value that is not an array | null |
| `contains` | whether an item has a JSON text, or is a text | false |

The first four are null for null, and an error for other values. All are null for a null document.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.jsonb import value_text
from lance_spark.scan.predicates.expressions.kernels import RowError, json_vectors
from lance_spark.scan.predicates.json_paths import MISSING, find

_SHOWN = 60
_INT64 = range(-(1 << 63), 1 << 63)
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)",
    re.ASCII | re.IGNORECASE,
)
_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}
#: Longer texts are no numbers: Python is slow to parse integers of many digits.
_MAX_DIGITS = 400


def _failed(value: Any, noun: str) -> RowError:
    text = value_text(value)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return RowError(f"the JSON value {shown} is not {noun}")


def _int(value: Any) -> int:
    number: int | None = None
    if isinstance(value, str) and len(value) <= _MAX_DIGITS:
        if _INTEGER.fullmatch(value):
            number = int(value)
        elif _FLOAT.fullmatch(value):
            number = _rounded(float(value))
    elif isinstance(value, int):
        number = int(value)
    elif isinstance(value, float):
        number = _rounded(value)
    if number is None or number not in _INT64:
        raise _failed(value, "an integer of 64 bits")
    return number


def _rounded(value: float) -> int | None:
    """Return the nearest integer; of two, the one away from zero."""
    if not math.isfinite(value):
        return None
    whole = math.trunc(value)
    if abs(value - whole) < 0.5:
        return whole
    return whole + (1 if value > 0 else -1)


def _float(value: Any) -> float:
    if isinstance(value, str) and len(value) <= _MAX_DIGITS and _FLOAT.fullmatch(value):
        return float(value)
    if isinstance(value, int | float):
        return float(value)
    raise _failed(value, "a number")


def _bool(value: Any) -> bool:
    result = _BOOLEANS.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(result, bool):
        raise _failed(value, "a boolean")
    return result


def _string(value: Any) -> str:
    if isinstance(value, dict | list):
        raise _failed(value, "a text, a number or a boolean")
    return value if isinstance(value, str) else value_text(value)


def _contains(value: Any, wanted: str) -> bool:
    if type(value) is not list:
        return False
    texts = (wanted, f'"{wanted}"')
    return any(value_text(item) in texts for item in value)


_CONVERTED: dict[str, Callable[[Any], Any]] = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "string": _string,
    "text": value_text,
    "get": lambda _: True,
    "exists": lambda _: True,
    "length": lambda value: len(value) if type(value) is list else 0,
}


def json_value(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    """Compute a function of documents.

    Parameters
    ----------
    arrays : sequence of pa.Array
        One array of JSONB (large_binary), or of JSON texts.
    detail : tuple
        The result of the table, the steps of ``json_get`` before it, those of its path, and the
        text that `contains` searches.
    dtype : pa.DataType
        Of the result.

    Raises
    ------
    RowError
        A value cannot be converted.
    """
    (documents,) = arrays
    if pat.is_large_binary(documents.type):
        return json_vectors.computed(documents, detail, dtype, _result)
    encoded = documents.dictionary_encode()
    values = [_result(json.loads(text), detail) for text in encoded.dictionary.to_pylist()]
    return pa.array(values, dtype).take(encoded.indices)


def _result(document: Any, detail: Any) -> Any:
    """Return the result for one document, as the json module reads it."""
    result, keys, path, wanted = detail
    document = find(document, keys)
    if document is MISSING:
        return None
    value = find(document, path)
    if value is MISSING:
        return False if result in ("exists", "contains") else None
    if value is None and result in ("int", "float", "bool", "string"):
        return None
    return _contains(value, wanted) if result == "contains" else _CONVERTED[result](value)
