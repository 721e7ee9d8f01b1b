"""Fields of file version 0.1: which pages they are made of, and how many values each batch has of
them.

==================================  ==============================================================
field                               pages
==================================  ==============================================================
struct                              none; its children have as many values
list, large list                    offsets, one more than lists; the child has the items
dictionary                          positions; the values are shared by all batches
string, binary, large ones          offsets to bytes
null                                none, though the page table has a length
fixed-size list, all others         values of a fixed width; nothing below has pages
==================================  ==============================================================

Specification: format/file of the legacy format.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import is_variable
from lance_spark.encoding.meta import FieldReader
from lance_spark.encoding.v0_1.dictionary import DictionaryReader
from lance_spark.encoding.v0_1.lists import ListReader
from lance_spark.encoding.v0_1.pages import Numbers, Pages, bounds_of
from lance_spark.encoding.v0_1.plain import NullReader, PlainReader
from lance_spark.encoding.v0_1.structs import StructReader
from lance_spark.encoding.v0_1.var_binary import VarBinaryReader
from lance_spark.errors import CorruptFileError, LanceError, UnsupportedTypeError


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A field with what a file says about it.

    Attributes
    ----------
    field : pa.Field
        Its type says what to read: a struct may lack children that the file has.
    pages : Pages or None
        None for a struct.
    children : tuple of Node
        Of a struct, as its type has them; of a list, the one of its items; else none.
    dictionary : Pages or None
        The one page of the values of a dictionary.
    """

    field: pa.Field
    pages: Pages | None = None
    children: tuple[Node, ...] = ()
    dictionary: Pages | None = None


def has_pages(dtype: pa.DataType) -> bool:
    """Whether a field of the type has entries in the page table that mean something."""
    return not pat.is_struct(dtype)


def open_field(node: Node, counts: Numbers, size: int) -> FieldReader:
    """Return the reader of a top-level field.

    Parameters
    ----------
    node : Node
    counts : int64 array
        Rows of each batch.
    size : int
        Of the file in bytes.

    Raises
    ------
    CorruptFileError
        The pages lie outside the file, or have other numbers of values than the batches.
    UnsupportedTypeError
        File version 0.1 cannot store the type.
    """
    reader, _ = _open(node, node.field.name, counts, size)
    return reader


def _open(node: Node, path: str, counts: Numbers | None, size: int) -> tuple[FieldReader, Numbers]:
    # Below a list nothing but the pages says how many values a batch has: `counts` is None until
    # one of them did.
    dtype = node.field.type
    if pat.is_struct(dtype):
        return _open_struct(node, path, counts, size)
    pages = node.pages
    if pages is None:
        raise CorruptFileError(f"field {path!r} has no pages")
    if pat.is_null(dtype):
        return NullReader(), pages.lengths if counts is None else counts
    is_list = pat.is_list(dtype) or pat.is_large_list(dtype)
    num_values = pages.lengths - 1 if is_list else pages.lengths
    if counts is not None and not np.array_equal(num_values, counts):
        batch = int(np.argmax(num_values != counts))
        raise CorruptFileError(
            f"field {path!r} has {int(num_values[batch])} values in batch {batch} where "
            f"{int(counts[batch])} are expected"
        )
    items = None
    if is_list:
        (child,) = node.children
        items = _open(child, f"{path}.{child.field.name}", None, size)
    try:
        return _open_pages(node, pages, num_values, items, size), num_values
    except LanceError as error:
        raise type(error)(f"field {path!r}: {error}") from None


def _open_pages(
    node: Node,
    pages: Pages,
    counts: Numbers,
    items: tuple[FieldReader, Numbers] | None,
    size: int,
) -> FieldReader:
    dtype = node.field.type
    bounds = bounds_of(counts)
    if items is not None:
        return ListReader(dtype, pages, bounds, items[0], bounds_of(items[1]), size)
    if is_variable(dtype):
        return VarBinaryReader(dtype, node.field.nullable, pages, bounds, size)
    if pat.is_dictionary(dtype):
        if node.dictionary is None:
            raise CorruptFileError("the schema does not say where its dictionary is")
        return DictionaryReader(dtype, pages, bounds, node.dictionary, size)
    return PlainReader(dtype, pages, bounds, size)


def _open_struct(
    node: Node, path: str, counts: Numbers | None, size: int
) -> tuple[FieldReader, Numbers]:
    readers = []
    for child in node.children:
        reader, counts = _open(child, f"{path}.{child.field.name}", counts, size)
        readers.append(reader)
    if counts is None:
        raise UnsupportedTypeError(
            f"field {path!r}: structs without fields cannot be read from lists"
        )
    return StructReader(node.field.type, readers), counts
