"""Functions of JSON documents, of one document and of many JSONB values at once."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.json.jsonb import CONTAINER, FALSE, STRING, TRUE, decode, value_text
from lance_spark.json.paths import MISSING, find, located
from lance_spark.json.search import NOTHING, ODD, Bools, Located, pieces, strings
from lance_spark.predicates.expressions.kernels import RowError

# --------------------------------------------------------------------------------------------------
# Functions of JSON documents for many documents of JSONB at once.
#
# | result | values that are computed together |
# | --- | --- |
# | `exists`, `get`, `length` | all |
# | `contains` | a text that JSON does not escape; if it may be a value of JSON, in arrays of texts
#     |
# | `int` | numbers and booleans |
# | `float` | numbers and booleans |
# | `bool` | booleans |
# | `string` | texts, integers and booleans |
# | `text` | texts without escapes, integers, booleans and null |
#
# Python code computes the other values one by one, and those of documents that
# `lance_spark.json.search` calls odd. The results are those of `json_documents`.

#: Characters that JSON text escapes.
_ESCAPED = r'["\\\x00-\x1f]'
#: What JSON texts of numbers, literals, arrays and objects start with.
_STARTS_OF_VALUES = ("-", *"0123456789", "true", "false", "null", "[", "{")

#: Computes the result for one document, as the json module reads it, from the detail of a call.
OneByOne = Callable[[Any, Any], Any]


def computed(
    documents: pa.Array, detail: Any, dtype: pa.DataType, one_by_one: OneByOne
) -> pa.Array:
    """Compute a function of documents.

    - `documents`: Of type large_binary.
    - `detail`: As for `json_documents.json_value`.
    - `dtype`: Of the result.
    - `one_by_one`: Computes the results that are not computed together.

    Raises CorruptFileError, UnsupportedEncodingError: a value is damaged, or has a type that JSON
    lacks. Raises RowError: a value cannot be converted.
    """
    return pa.concat_arrays(
        [_of_piece(piece, detail, dtype, one_by_one) for piece in pieces(documents)]
    )


def _of_piece(
    documents: pa.Array, detail: Any, dtype: pa.DataType, one_by_one: OneByOne
) -> pa.Array:
    import pyarrow.compute as pc

    result, keys, path, wanted = detail
    members = located(Located.of(documents), keys)
    values = located(members, path)
    together = partial(_contains, wanted=wanted) if result == "contains" else _TOGETHER[result]
    array, is_done = together(values)
    is_done |= values.kinds == NOTHING
    if result in ("exists", "contains"):
        is_null = pa.array(members.kinds == NOTHING)
        array = pc.if_else(is_null, pa.scalar(None, dtype), array)
    if is_done.all():
        return array
    others: list[Any] = []
    for row in np.flatnonzero(~is_done).tolist():
        if values.kinds[row] == ODD:
            others.append(one_by_one(json.loads(decode(documents[row].as_py())), detail))
        else:
            value = json.loads(decode(values.document(row)))
            others.append(one_by_one(value, (result, (), (), wanted)))
    return pc.replace_with_mask(array, pa.array(~is_done), pa.array(others, dtype))


def _exists(values: Located) -> tuple[pa.Array, Bools]:
    return pa.array(values.kinds < ODD), values.kinds != ODD


def _get(values: Located) -> tuple[pa.Array, Bools]:
    is_there = values.kinds < ODD
    return pa.array(is_there, mask=~is_there), values.kinds != ODD


def _length(values: Located) -> tuple[pa.Array, Bools]:
    counts, is_odd = values.lengths()
    return pa.array(counts, mask=values.kinds == NOTHING), ~is_odd


def _contains(values: Located, wanted: str) -> tuple[pa.Array, Bools]:
    contains = np.zeros(len(values.kinds), np.bool_)
    if re.search(_ESCAPED, wanted):
        return pa.array(contains), (values.kinds != ODD) & (values.kinds != CONTAINER)
    entries, odd = values.entries()
    is_text, is_done = entries.kinds == STRING, np.ones(len(contains), np.bool_)
    is_done[odd] = False
    is_done[entries.rows[entries.is_odd]] = False
    if wanted.startswith(_STARTS_OF_VALUES):
        is_done[entries.rows[entries.container[~is_text]]] = False
    containers = entries.container[entries.equal_to(wanted.encode(), is_text)]
    contains[entries.rows[containers[~entries.is_object[containers]]]] = True
    return pa.array(contains), is_done


def _int(values: Located) -> tuple[pa.Array, Bools]:
    numbers, is_true, is_bool = values.numbers(), values.kinds == TRUE, _is_bool(values)
    whole = np.trunc(numbers.floats)
    # Half is rounded away from zero. The difference is exact.
    far = np.abs(numbers.floats - whole) >= 0.5
    whole += np.where(far, np.copysign(1.0, numbers.floats), 0.0)
    fits = numbers.is_float & (whole >= -(2.0**63)) & (whole < 2.0**63)
    ints = np.where(is_true, 1, numbers.ints)
    ints[fits] = whole[fits].astype(np.int64)
    has_value = numbers.is_int | fits | is_bool
    return pa.array(ints, mask=~has_value), has_value | numbers.is_null | (values.kinds == 0)


def _float(values: Located) -> tuple[pa.Array, Bools]:
    numbers, is_true, is_bool = values.numbers(), values.kinds == TRUE, _is_bool(values)
    has_value = numbers.is_int | numbers.is_float | is_bool
    array = pa.array(np.where(is_true, 1.0, numbers.floats), mask=~has_value)
    return array, has_value | numbers.is_null | (values.kinds == 0)


def _bool(values: Located) -> tuple[pa.Array, Bools]:
    is_bool = _is_bool(values)
    is_done = is_bool | values.numbers().is_null | (values.kinds == 0)
    return pa.array(values.kinds == TRUE, mask=~is_bool), is_done


def _string(values: Located) -> tuple[pa.Array, Bools]:
    array, is_string = _strings(values)
    array, is_done = _with_plain_texts(values, array)
    return array, is_done | is_string | (values.kinds == 0)


def _strings(values: Located) -> tuple[pa.Array, Bools]:
    """Return the texts, and which rows have one; none if one is damaged: the decoder says which."""
    is_string: Bools = values.kinds == STRING
    try:
        return strings(values, is_string), is_string
    except pa.ArrowInvalid:
        is_string[:] = False
        return pa.nulls(len(is_string), pa.string()), is_string


def _text(values: Located) -> tuple[pa.Array, Bools]:
    import pyarrow.compute as pc

    array, is_string = _strings(values)
    escaped = pc.match_substring_regex(array, _ESCAPED).fill_null(False)
    is_string &= ~escaped.to_numpy(zero_copy_only=False)
    array = pc.binary_join_element_wise('"', array, '"', "")
    array, is_done = _with_plain_texts(values, array)
    is_done |= is_string
    is_null = values.kinds == 0
    return pc.if_else(pa.array(is_null), "null", array), is_done | is_null


def _with_plain_texts(values: Located, array: pa.Array) -> tuple[pa.Array, Bools]:
    """Return strings with the texts of integers and booleans, and which rows have one."""
    import pyarrow.compute as pc

    numbers, is_bool = values.numbers(), _is_bool(values)
    if numbers.is_int.any():
        texts = pa.array(numbers.ints).cast(pa.string())
        array = pc.if_else(pa.array(numbers.is_int), texts, array)
    if is_bool.any():
        texts = pa.array(values.kinds == TRUE).cast(pa.string())
        array = pc.if_else(pa.array(is_bool), texts, array)
    return array, numbers.is_int | is_bool


def _is_bool(values: Located) -> Bools:
    is_bool: Bools = (values.kinds == TRUE) | (values.kinds == FALSE)
    return is_bool


#: Each returns the values, and which rows are right.
_TOGETHER: dict[str, Callable[[Located], tuple[pa.Array, Bools]]] = {
    "exists": _exists,
    "get": _get,
    "length": _length,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "string": _string,
    "text": _text,
}


# --------------------------------------------------------------------------------------------------
# Functions of JSON documents, as pylance computes them.
#
# Documents are JSONB, for which `json_vectors` computes most values, or texts. A text is parsed by
# the json module, once for each different text of a batch. The steps of a path
# (`lance_spark.json.paths`) are then Python code for each document.
#
# | result | of the value that is found | if nothing is found |
# | --- | --- | --- |
# | `int` | a number, rounded half away from zero; a boolean; a text that is a number | null |
# | `float` | a number, a boolean, a text that is a number | null |
# | `bool` | a boolean; the texts true, yes, false, no in any case of letters | null |
# | `string` | a text, a number or a boolean | null |
# | `get` | whether it is there | null |
# | `text` | its JSON text | null |
# | `exists` | true | false |
# | `length` | the number of items, 0 for a value that is not an array | null |
# | `contains` | whether an item has a JSON text, or is a text | false |
#
# The first four are null for null, and an error for other values. All are null for a null document.

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


def _as_int(value: Any) -> int:
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


def _as_float(value: Any) -> float:
    if isinstance(value, str) and len(value) <= _MAX_DIGITS and _FLOAT.fullmatch(value):
        return float(value)
    if isinstance(value, int | float):
        return float(value)
    raise _failed(value, "a number")


def _as_bool(value: Any) -> bool:
    result = _BOOLEANS.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(result, bool):
        raise _failed(value, "a boolean")
    return result


def _as_string(value: Any) -> str:
    if isinstance(value, dict | list):
        raise _failed(value, "a text, a number or a boolean")
    return value if isinstance(value, str) else value_text(value)


def _has_item(value: Any, wanted: str) -> bool:
    if type(value) is not list:
        return False
    texts = (wanted, f'"{wanted}"')
    return any(value_text(item) in texts for item in value)


_CONVERTED: dict[str, Callable[[Any], Any]] = {
    "int": _as_int,
    "float": _as_float,
    "bool": _as_bool,
    "string": _as_string,
    "text": value_text,
    "get": lambda _: True,
    "exists": lambda _: True,
    "length": lambda value: len(value) if type(value) is list else 0,
}


def json_value(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    """Compute a function of documents.

    - `arrays`: One array of JSONB (large_binary), or of JSON texts.
    - `detail`: The result of the table, the steps of ``json_get`` before it, those of its path, and
      the text that `contains` searches.
    - `dtype`: Of the result.

    Raises RowError: a value cannot be converted.
    """
    (documents,) = arrays
    if pat.is_large_binary(documents.type):
        return computed(documents, detail, dtype, _result)
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
    return _has_item(value, wanted) if result == "contains" else _CONVERTED[result](value)
