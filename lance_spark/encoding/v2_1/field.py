"""Entry point of file versions 2.1 and 2.2, for reading and writing fields.

Both import their modules on demand, so that a reader never loads modules of the writer.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lance_spark.encoding.meta import ColumnMeta, EncodedPage, FieldReader


def open_field(field: pa.Field, columns: Sequence[ColumnMeta], file: str) -> FieldReader:
    """Return the reader of a field.

    Parameters
    ----------
    field : pa.Field
        Its type says what to read: a struct may lack children that the file has.
    columns : sequence of ColumnMeta
        The leaf columns of `field`, depth first.
    file : str
        Name of the file, for errors.

    Raises
    ------
    CorruptFileError
        The number of columns is not that of the field's leaves.
    """
    from lance_spark.encoding.v2_1.field_read import StructuralField

    return StructuralField(field, columns, file)


def encode_field(array: pa.Array, field: pa.Field, version: tuple[int, int]) -> list[EncodedPage]:
    """Return one page for each leaf column of `field`, holding all rows of `array`.

    Parameters
    ----------
    array : pa.Array
        Of the field's type.
    field : pa.Field
        With the metadata keys ``lance-encoding:*`` that steer the choice of encodings.
    version : tuple of int
        File version, ``(2, 1)`` or ``(2, 2)``.

    Raises
    ------
    UnsupportedTypeError
        The version has no encoding for the type.
    InvalidInputError
        A metadata key has a value that is not one of its.
    """
    from lance_spark.encoding.v2_1.field_write import encode

    return encode(array, field, version)
