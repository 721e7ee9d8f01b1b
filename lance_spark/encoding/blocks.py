"""Data blocks: the values of one leaf column without their nulls and lists, between Arrow and the
codecs.

A codec turns a block into bytes and back, without regard to Arrow types, nulls of outer layers or
lists. Null slots hold an arbitrary value, so a block has a value for every visible slot of its
page. The format has these blocks: fixed width, variable width, fixed-size list, struct (packed) and
dictionary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lance_spark.storage.source import Bytes


@dataclass(frozen=True, slots=True)
class FixedWidthBlock:
    """Values of one width, back to back.

    - `data`: At least ``ceil(num_values * bits_per_value / 8)`` bytes, little-endian; 1-bit values
      LSB first.
    - `bits_per_value`: 1 or a multiple of 8; 0 if all are null.
    """

    data: Bytes
    bits_per_value: int
    num_values: int


@dataclass(frozen=True, slots=True)
class VariableWidthBlock:
    """Byte strings.

    - `offsets`: Value i is ``data[offsets[i]:offsets[i + 1]]``; never decreasing; the first need
      not be 0.
    """

    offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64]
    data: Bytes

    @property
    def num_values(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(
        cls, offsets: npt.NDArray[np.int64], data: Bytes, offset_bytes: int
    ) -> VariableWidthBlock:
        """Return values with offsets of 4 bytes if requested and possible, otherwise of 8 bytes."""
        if offset_bytes == 4 and int(offsets[-1]) <= np.iinfo(np.int32).max:
            return cls(offsets.astype(np.int32), data)
        return cls(offsets, data)


@dataclass(frozen=True, slots=True)
class FixedSizeListBlock:
    """Vectors of `dimension` items each.

    - `items`: ``num_values * dimension`` values.
    - `validity`: False where an item (not the vector) is null; None if no item is.
    """

    items: DataBlock
    dimension: int
    validity: npt.NDArray[np.bool_] | None = None

    @property
    def num_values(self) -> int:
        return self.items.num_values // self.dimension


@dataclass(frozen=True, slots=True)
class StructBlock:
    """Rows of a packed struct: one block per child, of equal lengths and without nulls."""

    children: tuple[DataBlock, ...]

    @property
    def num_values(self) -> int:
        return self.children[0].num_values


@dataclass(frozen=True, slots=True)
class DictionaryBlock:
    """Values given as positions in a list of distinct items.

    - `indices`: Unsigned positions of 8, 16, 32 or 64 bits; also null slots have a position inside
      `items`.
    """

    indices: FixedWidthBlock
    items: DataBlock

    @property
    def num_values(self) -> int:
        return self.indices.num_values


DataBlock = (
    FixedWidthBlock | VariableWidthBlock | FixedSizeListBlock | StructBlock | DictionaryBlock
)
