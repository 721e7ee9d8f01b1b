"""`Dictionary`: distinct items, and the number of its item for every value.

The numbers of the items depend on the column:

* A column of dictionary type holds 0-based `indices` in its index type. Items may be null: writers
  turn the nulls of such a column into the index of a null item.
* Any other column (writers do this to strings with few distinct values) holds 1-based `indices`; 0
  is a null.

The items are read once and kept: they belong to every row of the page.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import items_at, unsigned, validity_of, with_validity
from lance_spark.encoding.blocks import FixedWidthBlock
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_0.codecs import flat
from lance_spark.encoding.v2_0.codecs.flat import width_of
from lance_spark.encoding.v2_0.codecs.nullable import AllNulls, never_null
from lance_spark.encoding.v2_0.page import Decoder, NewBuffers, PageBuffers, open_encoding
from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ReadPlan, gather_plans

_INDEX_TYPES = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}

#: Minimum number of strings for a dictionary, whose distinct items must fit indices of 8 bits.
_MIN_VALUES = 100
_MAX_ITEMS = 255
#: Values of a sample that reveals most columns with many distinct values.
_SAMPLE = 4096


class DictionaryValues:
    """Values looked up in a dictionary, or a dictionary array."""

    def __init__(
        self, indices: Decoder, items: Decoder, dtype: pa.DataType, num_items: int
    ) -> None:
        self._indices = indices
        self._decoder = items
        self._dtype = dtype
        self._num_items = num_items
        self._items: pa.Array | None = None
        self._item_positions: npt.NDArray[np.int64] | None = None

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        if isinstance(self._decoder, AllNulls):
            # These nulls have no bytes, so the file does not bound their number.
            return pa.nulls(len(rows) * per_row, self._dtype)
        plans = [self._indices.read(rows, per_row)]
        if self._items is None:
            plans.append(self._decoder.read(range(self._num_items)))
        indices, *items = yield from gather_plans(plans)
        if items:
            self._keep(items[0])
        if pat.is_dictionary(self._dtype):
            return self._positions(indices)
        return self._values(indices)

    def _keep(self, items: pa.Array) -> None:
        if not pat.is_dictionary(self._dtype):
            # Index 0 is a null, index 1 the first item.
            items = pa.concat_arrays([pa.nulls(1, self._dtype), items])
        elif items.null_count:
            # Arrow cannot join dictionaries that hold nulls: they become nulls of the indices.
            valid = validity_of(items)
            assert valid is not None
            self._item_positions = np.where(valid, np.cumsum(valid) - 1, -1)
            items = items.drop_null()
        self._items = items

    def _positions(self, indices: pa.Array) -> pa.Array:
        valid = validity_of(indices)
        positions = _numbers(indices)
        live = positions if valid is None else positions[valid]
        self._check(int(live.max(initial=0)) if len(live) else -1)
        if self._item_positions is not None:
            item_positions = self._item_positions[
                positions if valid is None else np.where(valid, positions, 0)
            ]
            present = item_positions >= 0 if valid is None else (item_positions >= 0) & valid
            moved = np.where(present, item_positions, 0).astype(indices.type.to_pandas_dtype())
            indices = with_validity(pa.array(moved, indices.type), present)
        return pa.DictionaryArray.from_arrays(
            indices, self._items, ordered=self._dtype.ordered, safe=False
        )

    def _values(self, indices: pa.Array) -> pa.Array:
        positions = _numbers(indices)
        self._check(int(positions.max(initial=0)) - 1)
        assert self._items is not None
        return self._items.take(indices) if indices.null_count else items_at(self._items, positions)

    def _check(self, highest: int) -> None:
        if highest >= self._num_items:
            raise CorruptFileError(f"position {highest} in a dictionary of {self._num_items} items")


def _numbers(indices: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]:
    bits = indices.type.bit_width
    data = np.frombuffer(indices.buffers()[1], np.uint8)[indices.offset * bits // 8 :]
    return unsigned(FixedWidthBlock(data, bits, len(indices)))


def open_message(
    message: pb.Dictionary, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of a `Dictionary` message; see `open_encoding`."""
    if pat.is_dictionary(dtype):
        index_type, item_type = dtype.index_type, dtype.value_type
    else:
        bits = width_of(message.indices)
        if bits not in _INDEX_TYPES:
            raise CorruptFileError(f"positions of {bits} bits point into a dictionary")
        index_type, item_type = _INDEX_TYPES[bits], dtype
    num_items = message.num_dictionary_items
    indices = open_encoding(message.indices, index_type, count, buffers)
    items = open_encoding(message.items, item_type, num_items, buffers)
    return DictionaryValues(indices, items, dtype, num_items)


def encode(
    array: pa.Array, buffers: NewBuffers, items: Callable[[pa.Array], pb.ArrayEncoding]
) -> pb.ArrayEncoding:
    """Return the message for an array of dictionary type: nulls point at an item that is null.

    - `array`: As `arrow_blocks.storable` returns it.
    - `items`: Returns the message for the items.

    Raises InvalidInputError: the index type has no number left for the null.
    """
    indices, dictionary = array.indices, array.dictionary
    if indices.null_count or not len(dictionary):
        highest = np.iinfo(indices.type.to_pandas_dtype()).max
        if len(dictionary) > highest:
            used = pc.unique(indices.drop_null())
            if len(used) > highest:
                raise InvalidInputError(
                    f"{len(dictionary)} items and a null need more indices than {indices.type} "
                    "has: cast the column to a dictionary with a wider index type"
                )
            indices = pc.index_in(indices, used).cast(indices.type)
            dictionary = dictionary.take(used)
        indices = indices.fill_null(len(dictionary))
        dictionary = pa.concat_arrays([dictionary, pa.nulls(1, dictionary.type)])
    message = pb.Dictionary(num_dictionary_items=len(dictionary))
    message.indices.CopyFrom(never_null(flat.encode_values(indices, buffers)))
    message.items.CopyFrom(items(dictionary))
    return pb.ArrayEncoding(dictionary=message)


def encode_repeated(
    array: pa.Array, buffers: NewBuffers, items: Callable[[pa.Array], pb.ArrayEncoding]
) -> pb.ArrayEncoding | None:
    """Return the message for strings with few distinct values; None if they have many.

    Readers expect indices of 8 bits here, and strings with 32-bit offsets.
    """
    if not pat.is_string(array.type) or len(array) < _MIN_VALUES:
        return None
    if len(array.slice(0, _SAMPLE).dictionary_encode().dictionary) > _MAX_ITEMS:
        return None
    encoded = array.dictionary_encode()
    dictionary = encoded.dictionary
    if len(dictionary) > _MAX_ITEMS:
        return None
    if not len(dictionary):
        dictionary = pa.array([""])
    positions = encoded.indices.to_numpy(zero_copy_only=False)
    if encoded.indices.null_count:
        positions = encoded.indices.fill_null(-1).to_numpy()
    message = pb.Dictionary(num_dictionary_items=len(dictionary))
    message.indices.CopyFrom(never_null(flat.encode((positions + 1).astype(np.uint8), 8, buffers)))
    message.items.CopyFrom(items(dictionary))
    return pb.ArrayEncoding(dictionary=message)
