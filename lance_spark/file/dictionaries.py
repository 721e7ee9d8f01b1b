"""Columns that are read in another form than their type.

Strings and bytes stay dictionary arrays, as they are stored. Few different values are decoded once,
and their rows stay small numbers. A filter of one column is evaluated on the values of the
dictionary, not on the rows. Decimals of at most 18 digits become int64: half the bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import is_short_decimal
from lance_spark.encoding.v2_1.leaf_columns import KEEP_DICTIONARY, UNSCALED
from lance_spark.file.schema.field import Field

#: Start of the names of types of decimals of 128 bits.
DECIMAL = "decimal:128:"
#: Types whose values have no fixed width.
_VARIABLE = ("string", "large_string", "binary", "large_binary")


def preserve_dictionaries(
    fields: Iterable[Field], without: Collection[int] = (), *, decimals: bool = False
) -> tuple[Field, ...]:
    """Return columns whose arrays are dictionary arrays where all pages of a read have one.

    - `without`: Ids of columns that stay as they are.
    - `decimals`: Whether decimals have dictionaries too.
    """
    return tuple(
        replace(column, metadata={**column.metadata, KEEP_DICTIONARY.decode(): b""})
        if (
            column.logical_type in _VARIABLE
            or (decimals and column.logical_type.startswith(DECIMAL))
        )
        and not column.is_blob
        and column.id not in without
        else column
        for column in fields
    )


def unscaled_decimals(fields: Iterable[Field], without: Collection[int] = ()) -> tuple[Field, ...]:
    """Return columns whose decimals of at most 18 digits are read as their unscaled values.

    Files before version 2.1 have the decimals.

    - `without`: Ids of columns that stay as they are.
    """
    return tuple(
        replace(column, metadata={**column.metadata, UNSCALED.decode(): b""})
        if column.logical_type.startswith(DECIMAL)
        and column.id not in without
        and is_short_decimal(column.arrow_field.type)
        else column
        for column in fields
    )


def is_preserved(array: pa.Array, field: Field) -> bool:
    """Return whether the values of a column of another type are a dictionary array."""
    return pat.is_dictionary(array.type) and not pat.is_dictionary(field.arrow_field.type)


def decoded(array: pa.Array) -> pa.Array:
    """Return the array without a dictionary."""
    return array.dictionary_decode() if pat.is_dictionary(array.type) else array
