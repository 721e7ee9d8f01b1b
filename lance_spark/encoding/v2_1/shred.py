"""From a nested Arrow array to its leaf columns: values without structure, and the levels that
describe the structure.

Levels are added from the outermost layer inwards. The level of a layer depends on the layers inside
it, which are not known yet. So levels are first counted from the outside: code 1 belongs to the
outermost layer that needs a level. `Ravel.levels` turns the codes into levels when the leaf is
reached.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import is_plain, storable, validity_of, vector_items
from lance_spark.encoding.levels import BoolArray, IndexArray, Layer, LevelArray, Levels, Step
from lance_spark.encoding.v2_1.codec import list_items
from lance_spark.encoding.v2_1.hints import check_packed
from lance_spark.encoding.v2_1.leaf_columns import (
    Leaf,
    child_fields,
    is_leaf,
    leaf_fields,
    storage_field,
)
from lance_spark.errors import UnsupportedTypeError

_ITEM = Step()


@dataclass(frozen=True, slots=True)
class Ravel:
    """The levels of the layers added so far. Immutable, so that the children of a struct share the
    levels of the struct.

    - `num_rows`: Rows of the column; below a fixed-size list of structs, its items.
    - `layers`: From the outermost inwards.
    - `visible`: Which entries have a slot in the next layer; None if all have.
    """

    num_rows: int
    num_entries: int
    layers: tuple[Layer, ...] = ()
    repetition: LevelArray | None = None
    definition: LevelArray | None = None
    visible: BoolArray | None = None

    @property
    def _codes(self) -> int:
        return sum(layer.num_levels for layer in self.layers)

    def _slot_codes(self) -> LevelArray | None:
        if self.definition is None or self.visible is None:
            return self.definition
        return self.definition[self.visible]

    def live(self) -> BoolArray | None:
        """Return which slots of the next layer are not below a null; None if none is."""
        codes = self._slot_codes()
        return None if codes is None else codes == 0

    def add_item(self, validity: BoolArray | None, *, nullable: bool = False) -> Ravel:
        """Add a struct or the leaf, with one flag per slot (None: all valid).

        Slots below a null make the layer nullable, as in pylance: its reader fails for lists and
        structs that are declared without nulls there.

        - `validity`: bool array, one per slot, or None
        - `nullable`: Whether the layer takes a level even if nothing is null. Structs around lists
          need that if other pages may have nulls: when pylance reads such pages together, it takes
          the items of an all-valid page for its structs.
        """
        if validity is None and self.definition is None and self.repetition is None:
            layer = Layer.NULLABLE_ITEM if nullable else Layer.ALL_VALID_ITEM
            return _without_lists(self.num_rows, self.num_entries, (*self.layers, layer))
        live = self.live()
        null = None
        if validity is not None:
            null = ~validity if live is None else live & ~validity
        if null is None or not null.any():
            below_null = live is not None and not live.all()
            layer = Layer.NULLABLE_ITEM if nullable or below_null else Layer.ALL_VALID_ITEM
            return Ravel(
                self.num_rows,
                self.num_entries,
                (*self.layers, layer),
                self.repetition,
                self.definition,
                self.visible,
            )
        code = np.uint16(self._codes + 1)
        if self.definition is None:
            definition = null.astype(np.uint16)
            if code != 1:
                definition *= code
        else:
            definition = self.definition.copy()
            if self.visible is None:
                definition[null] = code
            else:
                definition[np.flatnonzero(self.visible)[null]] = code
        return replace(self, layers=(*self.layers, Layer.NULLABLE_ITEM), definition=definition)

    def repeat(self, dimension: int) -> Ravel:
        """Replace each slot by `dimension` slots, the content of a fixed-size list of structs.

        Only if no list is above or inside: the format cannot express other cases.
        """
        assert self.visible is None
        definition = None if self.definition is None else np.repeat(self.definition, dimension)
        slots = self.num_entries * dimension
        return replace(self, num_rows=slots, num_entries=slots, definition=definition)

    def add_list(self, lengths: IndexArray, validity: BoolArray | None) -> tuple[Ravel, IndexArray]:
        """Add a list layer.

        Parameters
        ----------
        lengths : int64 array, one per slot
            Number of items of each list; ignored for null lists and for lists below a null.
        validity : bool array, one per slot, or None

        Returns
        -------
        Ravel
        int64 array, one per slot
            Lengths, with 0 for the ignored lists: these items are the slots of the next layer.
        """
        codes = self._slot_codes()
        live = np.ones(len(lengths), np.bool_) if codes is None else codes == 0
        null = np.zeros(0, np.bool_)
        if validity is not None:
            null = live & ~validity
            live &= validity
        empty = live & (lengths == 0)
        has_empty = bool(empty.any())
        # As in `add_item`; pylance also miscounts lists without a level between structs and lists
        # with a level.
        has_null = bool(null.any()) or Layer.NULLABLE_ITEM in self.layers
        layer = {
            (False, False): Layer.ALL_VALID_LIST,
            (True, False): Layer.NULLABLE_LIST,
            (False, True): Layer.EMPTYABLE_LIST,
            (True, True): Layer.NULL_AND_EMPTY_LIST,
        }[has_null, has_empty]
        live_lengths = np.where(live, lengths, 0)
        codes_of_lists = np.zeros(len(lengths), np.uint16) if codes is None else codes.copy()
        if has_empty:
            codes_of_lists[empty] = self._codes + 1
        if len(null):
            codes_of_lists[null] = self._codes + 1 + has_empty
        return self._expand(layer, live_lengths, codes_of_lists), live_lengths

    def _expand(self, layer: Layer, live_lengths: IndexArray, codes_of_lists: LevelArray) -> Ravel:
        if self.visible is None:
            counts, codes = np.maximum(live_lengths, 1), codes_of_lists
        else:
            counts = np.ones(self.num_entries, np.int64)
            counts[self.visible] = np.maximum(live_lengths, 1)
            assert self.definition is not None
            codes = self.definition.copy()
            codes[self.visible] = codes_of_lists
        total = int(counts.sum())
        starts = np.cumsum(counts) - counts
        depth = np.uint16(sum(layer.is_list for layer in self.layers) + 1)
        repetition = np.zeros(total, np.uint16)
        if self.repetition is None:
            repetition[starts] = depth
        else:
            repetition[starts] = np.where(self.repetition == 0, depth, self.repetition)
        definition = visible = None
        if codes.any():
            definition = np.zeros(total, np.uint16)
            definition[starts] = codes
            visible = definition == 0
        layers = (*self.layers, layer)
        return Ravel(self.num_rows, total, layers, repetition, definition, visible)

    def levels(self) -> Levels:
        """Return the levels, counted from the leaf outwards, once the leaf itself was added."""
        codes = self._codes
        if self.repetition is None and not codes:
            return Levels.all_valid(self.layers[::-1], self.num_entries)
        lists = np.uint16(sum(layer.is_list for layer in self.layers) + 1)
        repetition = _turn(self.repetition, lists)
        definition = self.definition
        if definition is None and codes:
            definition = np.zeros(self.num_entries, np.uint16)
        definition = _turn(definition, np.uint16(codes + 1))
        return Levels(self.layers[::-1], self.num_entries, repetition, definition)


@lru_cache(maxsize=1024)
def _without_lists(num_rows: int, num_entries: int, layers: tuple[Layer, ...]) -> Ravel:
    return Ravel(num_rows, num_entries, layers)


def _turn(codes: LevelArray | None, above: np.uint16) -> LevelArray | None:
    if codes is None or above == 2:
        return codes
    turned: LevelArray = np.where(codes == 0, np.uint16(0), above - codes)
    return turned


class LeafColumn(NamedTuple):
    """The rows of one leaf column, before encoding.

    - `num_rows`: Number of slots of the rows in the column (`Leaf.slots_per_row` for each).
    - `values`: One value per visible entry; null slots hold any value.
    - `live` (bool array, one per value, or None): False where the value itself, or a struct above
      it, is null; None if none is.
    """

    leaf: Leaf
    num_rows: int
    values: pa.Array
    live: BoolArray | None
    levels: Levels

    @property
    def has_one_level(self) -> bool:
        """Whether the values are in no list, and in no struct."""
        return self.levels.repetition is None and len(self.levels.layers) == 1

    @property
    def has_values(self) -> bool:
        """Whether some value is not null."""
        return len(self.values) > 0 and (self.live is None or bool(self.live.any()))


def shred(array: pa.Array, field: pa.Field) -> list[LeafColumn]:
    """Return the leaf columns of `array`, in column order.

    Values below null lists, and values that no list holds, are left out. Raises
    UnsupportedTypeError: a list is inside or around a fixed-size list of structs, which no Lance
    reader supports.
    """
    columns: list[LeafColumn] = []
    field = storage_field(field)
    dtype = field.type
    if not dtype.num_fields and array.type == dtype and not array.null_count and is_plain(dtype):
        return [_flat_column(array, field)]
    _shred(array, field, "", (), False, Ravel(len(array), len(array)), columns)
    return columns


def _flat_column(array: pa.Array, field: pa.Field) -> LeafColumn:
    """Return the only leaf column of a field without structure and nulls."""
    count = len(array)
    levels = Levels.all_valid((Layer.ALL_VALID_ITEM,), count)
    return LeafColumn(Leaf(field.name, field, (_ITEM,)), count, array, None, levels)


def _shred(
    array: pa.Array,
    field: pa.Field,
    above: str,
    outer: tuple[Step, ...],
    in_vectors: bool,
    ravel: Ravel,
    columns: list[LeafColumn],
) -> None:
    """Add the leaf columns of a field at any depth; `Leaf` documents the arguments."""
    field = storage_field(field)
    path = f"{above}.{field.name}" if above else field.name
    dtype = array.type
    if isinstance(dtype, pa.BaseExtensionType):
        array = array.storage
        dtype = array.type
    if is_leaf(field):
        values = storable(array)
        ravel = ravel.add_item(validity_of(values))
        leaf = Leaf(path, field, (_ITEM, *outer), in_vectors)
        columns.append(LeafColumn(leaf, ravel.num_rows, values, ravel.live(), ravel.levels()))
        return
    children = child_fields(field)
    validity = validity_of(array)
    if pat.is_struct(dtype):
        check_packed(field)
        nullable = field.nullable or ravel.layers[-1:] == (Layer.NULLABLE_ITEM,)
        steps = (_ITEM, *outer)
        inners: dict[bool, Ravel] = {}
        for index, child in enumerate(children):
            declared = nullable and _has_list(child.type)
            if declared not in inners:
                inners[declared] = ravel.add_item(validity, nullable=declared)
            inner = inners[declared]
            _shred(array.field(index), child, path, steps, in_vectors, inner, columns)
        return
    (child,) = children
    is_vector = pat.is_fixed_size_list(dtype)
    if any(step.is_list for step in outer) if is_vector else in_vectors:
        first = leaf_fields(field, above)[0]
        raise UnsupportedTypeError(
            f"column {first.path!r}: a fixed-size list of structs cannot be stored inside or "
            "around a list"
        )
    if is_vector:
        items = vector_items(array)
        inner = ravel.add_item(validity).repeat(dtype.list_size)
        step = Step(dimension=dtype.list_size, is_vector=True)
    else:
        offsets = array.offsets.to_numpy().astype(np.int64)
        inner, lengths = ravel.add_list(np.diff(offsets), validity)
        items = list_items(array.values, offsets, lengths)
        step = Step(is_list=True)
    _shred(items, child, path, (step, *outer), in_vectors or is_vector, inner, columns)


def _has_list(dtype: pa.DataType) -> bool:
    """Return whether a type is a list, or a struct around a list."""
    if isinstance(dtype, pa.BaseExtensionType):
        return _has_list(dtype.storage_type)
    if not dtype.num_fields:
        return False
    if pat.is_struct(dtype):
        return any(_has_list(dtype.field(i).type) for i in range(dtype.num_fields))
    return bool(pat.is_list(dtype) or pat.is_large_list(dtype) or pat.is_map(dtype))
