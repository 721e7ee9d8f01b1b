"""Functions of JSON documents for many documents of JSONB at once.

| result | values that are computed together |
| --- | --- |
| `exists`, `get`, `length` | all |
| `contains` | a text that JSON does not escape; if it may be a value of JSON, in arrays of texts |
| `int` | numbers and booleans |
| `float` | numbers and booleans |
| `bool` | booleans |
| `string` | texts, integers and booleans |
| `text` | texts without escapes, integers, booleans and null |

Python code computes the other values one by one, and those of documents that
`lance_spark.encoding.jsonb_search` calls odd. The results are those of `json_documents`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.encoding.jsonb import CONTAINER, FALSE, STRING, TRUE, decode
from lance_spark.encoding.jsonb_search import NOTHING, ODD, Bools, Located, pieces, strings
from lance_spark.scan.predicates.json_paths import located

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
