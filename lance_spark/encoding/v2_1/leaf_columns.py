"""The columns of an Arrow field in file versions 2.1 and 2.2, and the layers around each of them.

Only leaves have a column. A struct is one layer around all its leaves, a list is one layer around
the leaves of its item, a map is a list of structs. A fixed-size list of plain values is part of its
leaf. A fixed-size list of structs is a layer; each of its slots has `list_size` slots inside. A
packed struct, a blob and a struct without children are leaves.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import holds_structs, is_packed, is_short_decimal
from lance_spark.encoding.levels import Step
from lance_spark.encoding.meta import BLOB_KEY

#: Metadata of a field whose values may be returned as a dictionary array. It is never stored.
KEEP_DICTIONARY = b"lance-spark:keep-dictionary"
#: Metadata of a field of short decimals that are returned as their unscaled values, of type int64.
#: It is never stored.
UNSCALED = b"lance-spark:unscaled"


class Leaf(NamedTuple):
    """One leaf column of a field.

    - `path`: Names from the field down, joined by dots.
    - `field`: The leaf's own field; its type is the storage type, never an extension.
    - `steps`: The part of the type that each layer describes, leaf first.
    - `in_vectors`: Whether a layer is a fixed-size list, of any size.
    """

    path: str
    field: pa.Field
    steps: tuple[Step, ...]
    in_vectors: bool = False

    @property
    def slots_per_row(self) -> int:
        """Number of slots of the column for one row: more than one below fixed-size lists of
        structs.
        """
        slots = 1
        for step in self.steps:
            slots *= step.dimension
        return slots


def storage_field(field: pa.Field) -> pa.Field:
    """Return the field with an extension type replaced by its storage type."""
    dtype = field.type
    while isinstance(dtype, pa.BaseExtensionType):
        dtype = dtype.storage_type
    return field if dtype is field.type else field.with_type(dtype)


def is_blob(field: pa.Field) -> bool:
    """Return whether the field's values are stored outside of its pages."""
    return bool(BLOB_KEY.encode() in (field.metadata or {}))


def keeps_dictionary(field: pa.Field) -> bool:
    """Return whether the reader of a field accepts dictionary arrays of its values."""
    return bool(field.metadata) and KEEP_DICTIONARY in field.metadata


def is_unscaled(field: pa.Field) -> bool:
    """Return whether the reader of a field wants the unscaled values of its decimals."""
    return bool(field.metadata) and UNSCALED in field.metadata and is_short_decimal(field.type)


def is_leaf(field: pa.Field) -> bool:
    """Return whether a field (of storage type) is a column itself."""
    dtype = field.type
    if not dtype.num_fields:
        return True
    if pat.is_struct(dtype):
        return is_packed(field) or is_blob(field)
    if pat.is_fixed_size_list(dtype):
        return not holds_structs(dtype)
    return not (pat.is_list(dtype) or pat.is_large_list(dtype) or pat.is_map(dtype))


def child_fields(field: pa.Field) -> list[pa.Field]:
    """Return the fields of the next layer inside; the struct of entries for a map."""
    dtype = field.type
    if pat.is_struct(dtype):
        return [dtype.field(i) for i in range(dtype.num_fields)]
    if pat.is_map(dtype):
        entries = pa.struct([dtype.key_field, dtype.item_field])
        return [pa.field("entries", entries, nullable=False)]
    return [dtype.value_field]


def leaf_fields(field: pa.Field, above: str = "") -> list[Leaf]:
    """Return the leaf columns of a field in order; `above` is the path of the field above it."""
    leaves: list[Leaf] = []
    _collect(field, above, (), False, leaves)
    return leaves


def _collect(
    field: pa.Field, prefix: str, outer: tuple[Step, ...], in_vectors: bool, leaves: list[Leaf]
) -> None:
    field = storage_field(field)
    path = f"{prefix}.{field.name}" if prefix else field.name
    if is_leaf(field):
        leaves.append(Leaf(path, field, (Step(), *outer), in_vectors))
        return
    dtype = field.type
    if pat.is_struct(dtype):
        step = Step()
    elif pat.is_fixed_size_list(dtype):
        step, in_vectors = Step(dimension=dtype.list_size, is_vector=True), True
    else:
        step = Step(is_list=True)
    for child in child_fields(field):
        _collect(child, path, (step, *outer), in_vectors, leaves)
