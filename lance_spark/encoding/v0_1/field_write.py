"""Writing a field of file version 0.1: the pages of the field and of all fields below it, depth
first.

The rows of several batches are encoded together: `cuts` says where one batch ends and the next
begins. The pages of a field stand one after the other, so that a scan of few columns reads few
ranges. See `field` for which type has which pages.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import is_variable
from lance_spark.encoding.v0_1.dictionary import check_values, encode_positions
from lance_spark.encoding.v0_1.lists import encode_offsets
from lance_spark.encoding.v0_1.pages import EncodedPages, Numbers, Pages
from lance_spark.encoding.v0_1.plain import encode_plain, plain_bits
from lance_spark.encoding.v0_1.var_binary import encode_var_binary
from lance_spark.errors import UnsupportedTypeError

_WAY_OUT = "use data storage version 2.2"


def encode_field(array: pa.Array, cuts: Numbers, start: int) -> Iterator[EncodedPages]:
    """Yield the pages of a field and of each field below it, in the order in which they stand in
    the file.

    Parameters
    ----------
    array : pyarrow.Array
        Only strings, bytes and the null type may have nulls; see `lossless`.
    cuts : int64 array
        First row of each batch, and the number of all rows.
    start : int
        Position of the first page in the file.

    Yields
    ------
    EncodedPages
        One for each field; a struct has pages of zeros and no buffers.
    """
    dtype = array.type
    if pat.is_struct(dtype):
        none = np.zeros(len(cuts) - 1, np.int64)
        yield EncodedPages(Pages(none, none))
        for index in range(dtype.num_fields):
            for encoded in encode_field(array.field(index), cuts, start):
                start += encoded.size
                yield encoded
    elif pat.is_list(dtype) or pat.is_large_list(dtype):
        encoded, items, item_cuts = encode_offsets(array, cuts, start)
        yield encoded
        yield from encode_field(items, item_cuts, start + encoded.size)
    elif is_variable(dtype):
        yield encode_var_binary(array, cuts, start)
    elif pat.is_dictionary(dtype):
        yield encode_positions(array, cuts, start)
    else:
        yield encode_plain(array, cuts, start)


def check_field(field: pa.Field, path: str = "") -> None:
    """Raise UnsupportedTypeError if file version 0.1 cannot store the field."""
    dtype = field.type
    path = f"{path}.{field.name}" if path else field.name
    if pat.is_null(dtype) or is_variable(dtype):
        return
    if pat.is_struct(dtype):
        if not dtype.num_fields:
            raise UnsupportedTypeError(
                f"field {path!r}: files of version 0.1 have no structs without fields; {_WAY_OUT}"
            )
        for index in range(dtype.num_fields):
            check_field(dtype.field(index), path)
        return
    if pat.is_list(dtype) or pat.is_large_list(dtype):
        check_field(dtype.value_field, path)
        return
    try:
        if pat.is_dictionary(dtype):
            check_values(dtype.value_type)
        else:
            plain_bits(dtype)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"field {path!r}: {error}; {_WAY_OUT}") from None
