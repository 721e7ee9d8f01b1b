"""Columns that are read in another form than their type.

Strings and bytes stay dictionary arrays, as they are stored. Few different values are decoded once,
and their rows stay small numbers. A filter of one column is evaluated on the values of the
dictionary, not on the rows. Decimals of at most 18 digits become int64: half the bytes. Metadata of
a field, which is never stored, asks for such a form.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import from_unscaled, is_short_decimal
from lance_spark.encoding.v2_1.leaf_columns import KEEP_DICTIONARY, UNSCALED
from lance_spark.file.schema.field import Field

#: Start of the names of types of decimals of 128 bits.
DECIMAL = "decimal:128:"
#: Keys of metadata that ask for another form.
_FORMS = {KEEP_DICTIONARY.decode(), UNSCALED.decode()}
#: Types whose values have no fixed width.
_VARIABLE = ("string", "large_string", "binary", "large_binary")


def preserve_dictionaries(fields: Iterable[Field], *, decimals: bool = False) -> tuple[Field, ...]:
    """Return columns whose arrays are dictionary arrays where all pages of a read have one.

    - `decimals`: Whether decimals have dictionaries too.
    """
    return tuple(
        replace(column, metadata={**column.metadata, KEEP_DICTIONARY.decode(): b""})
        if (
            column.logical_type in _VARIABLE
            or (decimals and column.logical_type.startswith(DECIMAL))
        )
        and not column.is_blob
        else column
        for column in fields
    )


def unscaled_decimals(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Return columns whose decimals of at most 18 digits are read as their unscaled values.

    Files before version 2.1 have the decimals.
    """
    return tuple(
        replace(column, metadata={**column.metadata, UNSCALED.decode(): b""})
        if column.logical_type.startswith(DECIMAL) and is_short_decimal(column.arrow_field.type)
        else column
        for column in fields
    )


def declared(field: Field) -> Field:
    """Return a column as the table has it: its values are read in the form of its type."""
    if not field.metadata.keys() & _FORMS:
        return field
    kept = {key: value for key, value in field.metadata.items() if key not in _FORMS}
    return replace(field, metadata=kept)


def in_form(values: pa.Array, field: Field) -> pa.Array:
    """Return values of a column, which were read in any form, in the form that a field asks for.

    A dictionary array with more items than rows is decoded.
    """
    dtype, metadata = field.arrow_field.type, field.metadata
    if pat.is_dictionary(values.type) and not pat.is_dictionary(dtype):
        is_kept = KEEP_DICTIONARY.decode() in metadata and len(values.dictionary) <= len(values)
        values = values if is_kept else values.dictionary_decode()
    if pat.is_int64(values.type) and is_short_decimal(dtype) and UNSCALED.decode() not in metadata:
        return from_unscaled(values, dtype)
    return values
