"""JSON indexes: indexes of the values at one path of a JSON column.

The files are those of another type of index, the *target*, whose values are what the path finds:

| values that are not null | type of the index |
| --- | --- |
| booleans | bool |
| integers of 64 bits | int64 |
| numbers | float64; for other clients the first must be no integer |
| texts, or none | string |

Other mixtures are refused. Null in a document is null. Each segment has its own type.

The details of a segment have the path and the details of the target. Nothing says which type the
values have, so that Bloom filters, whose files do not show it, are not asked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pat
from google.protobuf.message import DecodeError

from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from lance_spark.indexes.registry import CREATED_IN_DOCUMENTS
from lance_spark.indexes.search import DocumentIndex, DocumentTarget
from lance_spark.json.jsonb import FALSE, STRING, TRUE, to_text, value_text
from lance_spark.json.paths import MISSING, Step, find, located, parse_path, same_steps
from lance_spark.json.search import NOTHING, Located, pieces, strings
from lance_spark.proto import index_pb2, table_pb2

_INT64 = range(-(1 << 63), 1 << 63)
_SHOWN = 60


def target_of(segment: table_pb2.IndexMetadata) -> DocumentTarget:
    """Return the target of a segment of a JSON index.

    Raises CorruptFileError: the details cannot be parsed.
    """
    details = index_pb2.JsonIndexDetails()
    try:
        details.ParseFromString(segment.index_details.value)
    except DecodeError as error:
        raise CorruptFileError(
            f"index {segment.name!r}: its details cannot be decoded ({error}); rebuild the index"
        ) from None
    copy = table_pb2.IndexMetadata()
    copy.CopyFrom(segment)
    copy.index_details.CopyFrom(details.target_details)
    return DocumentTarget(details.path, copy)


def searched_target(
    segment: table_pb2.IndexMetadata, keys: Sequence[Step]
) -> table_pb2.IndexMetadata | None:
    """Return a segment as one of its target, if it has the values that keys find; else None.

    Raises CorruptFileError.
    """
    target = target_of(segment)
    try:
        path = parse_path(target.path)
    except ValueError:
        # A path that only other clients support.
        return None
    is_searched = target.type_name in CREATED_IN_DOCUMENTS and same_steps(keys, path)
    return target.segment if is_searched else None


def details(path: str, type_url: str, value: bytes) -> bytes:
    """Return the message in `index_details` for a path and the details of the target."""
    message = index_pb2.JsonIndexDetails(path=path)
    message.target_details.type_url = type_url
    message.target_details.value = value
    return message.SerializeToString()


def extracted(documents: pa.Array, path: str) -> pa.Array:
    """Return the values at a path.

    - `documents`: JSONB (large_binary), or JSON texts.

    Raises CorruptFileError: a document is damaged. Raises InvalidInputError: a value is an array or
    object, or the values have different types. Raises UnsupportedFeatureError: the path has
    something that only other clients support.
    """
    try:
        steps = parse_path(path)
    except ValueError as error:
        raise UnsupportedFeatureError(f"JSON index: {error}") from None
    if not pat.is_large_binary(documents.type):
        return _of_texts(documents, path, steps)
    parts = [_of_piece(piece, path, steps) for piece in pieces(documents)]
    types = {part.type for part in parts if part.null_count < len(part)}
    if types == {pa.int64(), pa.float64()}:
        types = {pa.float64()}
    if len(types) > 1:
        # The error shows the first document that differs.
        return _of_texts(to_text(documents), path, steps)
    dtype = types.pop() if types else pa.string()
    return pa.concat_arrays([as_type(part, dtype) for part in parts])


def common_type(dtype: pa.DataType | None, values: pa.Array, path: str) -> pa.DataType | None:
    """Return the type of extracted values together with others.

    - `dtype`: The type of the others; None if they are null.

    Raises InvalidInputError: the values have different types.
    """
    if values.null_count == len(values) or values.type == dtype:
        return dtype
    if dtype is None:
        return values.type
    if {dtype, values.type} == {pa.int64(), pa.float64()}:
        return pa.float64()
    raise _refused(path, values.drop_null()[0].as_py(), f"the other values are {dtype}")


def _of_piece(documents: pa.Array, path: str, steps: Sequence[Step]) -> pa.Array:
    """Return the values at a path in JSONB."""
    import pyarrow.compute as pc

    values = located(Located.of(documents), steps)
    numbers = values.numbers()
    is_bool = (values.kinds == TRUE) | (values.kinds == FALSE)
    is_string = values.kinds == STRING
    is_null = (values.kinds == 0) | (values.kinds == NOTHING) | numbers.is_null
    is_number = numbers.is_int | numbers.is_float
    if sum(bool(mask.any()) for mask in (is_string, is_bool, is_number)) > 1:
        return _of_texts(to_text(documents), path, steps)
    if is_string.any():
        try:
            array = strings(values, is_string)
        except pa.ArrowInvalid:
            # The decoder says which text is damaged.
            return _of_texts(to_text(documents), path, steps)
    elif is_bool.any():
        array = pa.array(values.kinds == TRUE, mask=~is_bool)
    elif numbers.is_float.any():
        array = pa.array(numbers.floats, mask=~is_number)
    else:
        array = pa.array(numbers.ints, mask=~is_number)
    is_nested = ~(is_string | is_bool | is_number | is_null)
    if not is_nested.any():
        return array
    mask = pa.array(is_nested)
    replaced = _of_texts(to_text(documents.filter(mask)), path, steps)
    types = {part.type for part in (array, replaced) if part.null_count < len(part)}
    if len(types) > 1 and types != {pa.int64(), pa.float64()}:
        return _of_texts(to_text(documents), path, steps)
    dtype = pa.float64() if len(types) > 1 else types.pop() if types else pa.string()
    return pc.replace_with_mask(as_type(array, dtype), mask, as_type(replaced, dtype))


def as_type(values: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return values in the type of all values; integers may be rounded to float64."""
    if values.null_count == len(values):
        return pa.nulls(len(values), dtype)
    return values.cast(dtype, safe=False)


def _of_texts(documents: pa.Array, path: str, steps: Sequence[Step]) -> pa.Array:
    """Return the values at a path in JSON texts."""
    # A document that occurs often is parsed once.
    encoded = documents.dictionary_encode()
    results = [find(json.loads(text), steps) for text in encoded.dictionary.to_pylist()]
    values = [None if value is MISSING else value for value in results]
    dtype: pa.DataType | None = None
    for value in values:
        type_of_value = _type_of(value)
        if dtype is None or type_of_value is None:
            dtype = type_of_value if dtype is None else dtype
        elif {type_of_value, dtype} == {pa.int64(), pa.float64()}:
            dtype = pa.float64()
        elif type_of_value != dtype:
            raise _refused(path, value, f"the other values are {dtype}")
        if type_of_value == pa.binary():
            raise _refused(path, value, "only texts, numbers and booleans are indexed")
    if dtype == pa.float64():
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, dtype or pa.string()).take(encoded.indices)


def _type_of(value: Any) -> pa.DataType | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if value in _INT64 else pa.float64()
    if isinstance(value, float):
        return pa.float64()
    return pa.string() if isinstance(value, str) else pa.binary()


def _refused(path: str, value: Any, reason: str) -> InvalidInputError:
    text = value_text(value)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return InvalidInputError(
        f"JSON index of path {path!r}: a document has {shown} there, but {reason}"
    )


DOCUMENTS = DocumentIndex(target_of, searched_target, extracted)
