"""JSON columns: text in batches, JSONB in pages.

===============  ===================================================================================
where            shape
===============  ===================================================================================
Arrow schema     string with the extension ``arrow.json``; a writer may give large_string or a view
manifest, file   logical type ``json``, extension ``lance.json`` (``arrow.json`` in 0.39 and 1.0)
pages            large_binary of JSONB, see `lance_spark.json.jsonb`
filters, indexes large_binary of JSONB, which functions of JSON search; other conditions make texts
===============  ===================================================================================

Releases up to 0.33 at least stored the text itself: logical type ``string``, extension
``arrow.json``. These are strings here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter

import pyarrow as pa

from lance_spark.errors import InvalidInputError, LanceError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.nested import replace_arrays
from lance_spark.json import jsonb


def paged_json(field: Field) -> Field:
    """Return a field as pages have it: JSON is binary."""
    if field.logical_type == "json":
        return replace(field, logical_type="large_binary")
    if not field.has_json:
        return field
    return replace(field, children=tuple(paged_json(child) for child in field.children))


def read_json(array: pa.Array, field: Field, name: str) -> pa.Array:
    """Return the array of a page with JSON as text.

    - `array`: Array of the type of `paged_json(field)`.
    - `field`: A top-level field.
    - `name`: What errors call the file.

    Raises CorruptFileError, UnsupportedEncodingError: a value is not valid JSON. Raises
    InvalidInputError: the texts are more than one array holds.
    """
    if not field.has_json:
        return array
    try:
        return _converted(array, field, jsonb.to_text)
    except LanceError as error:
        raise type(error)(f"{name}, column {field.name!r}: {error}") from None


def write_json(array: pa.Array, field: Field, name: str, first_row: int) -> pa.Array:
    """Return rows for pages, with JSON as binary.

    - `array`: Array of the field's Arrow type.
    - `field`: A top-level field.
    - `name`: What errors call the file.
    - `first_row`: Number of the first row, for errors.

    Raises InvalidInputError: a text is not valid JSON, or contains values that JSONB cannot hold.
    """
    if not field.has_json:
        return array
    try:
        return _converted(array, field, jsonb.to_jsonb)
    except InvalidInputError:
        # The row is searched only for the error: values in lists do not have its number.
        for row in range(len(array)):
            try:
                _converted(array.slice(row, 1), field, jsonb.to_jsonb)
            except InvalidInputError as error:
                raise InvalidInputError(
                    f"{name}, column {field.name!r}, row {first_row + row}: {error}"
                ) from None
        raise


def _converted(array: pa.Array, field: Field, convert: Callable[[pa.Array], pa.Array]) -> pa.Array:
    return replace_arrays(
        array,
        field,
        lambda values, _: convert(values),
        is_replaced=lambda node: node.logical_type == "json",
        holds_replaced=attrgetter("has_json"),
    )
