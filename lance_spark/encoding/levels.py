"""Repetition and definition levels: the nulls and lists around one leaf column, as two small
numbers per entry.

A leaf column is wrapped in *layers*, listed from the leaf outwards: its own validity, then one
layer for each struct and list above it. An *entry* is one leaf slot, or one list that has no leaf
slot because it, or something above it, is null or empty.

=========================  =========================================================================
layer                      definition levels it takes, counted up from the leaf
=========================  =========================================================================
ALL_VALID_ITEM / _LIST     none
NULLABLE_ITEM / _LIST      one: null
EMPTYABLE_LIST             one: empty
NULL_AND_EMPTY_LIST        two: null, then empty
=========================  =========================================================================

Definition 0 is a valid leaf value. An entry has a leaf slot (is *visible*) if its level belongs to
the item layers below the innermost list. Repetition 0 continues the innermost list, r starts a list
r levels up (the number of list layers: a new row). Parquet counts both the other way round.
Specification: repdef.rs of lance-encoding.

Levels are unraveled to validity and list lengths from the leaf outwards. After the innermost list
is removed, its first entries represent the lists themselves: one entry per slot of the next layer,
with the repetition level lowered by one. An entry whose definition level belongs to a layer above
the next list has no slot there, but stays until that layer is reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lance_spark.errors import CorruptFileError, UnsupportedEncodingError

LevelArray = npt.NDArray[np.uint16]
BoolArray = npt.NDArray[np.bool_]
IndexArray = npt.NDArray[np.int64]


class Layer(IntEnum):
    """One layer around a leaf, numbered as in the `RepDefLayer` message."""

    ALL_VALID_ITEM = 1
    ALL_VALID_LIST = 2
    NULLABLE_ITEM = 3
    NULLABLE_LIST = 4
    EMPTYABLE_LIST = 5
    NULL_AND_EMPTY_LIST = 6

    # Layers are parts of many keys, and an enum's own hash is a Python function.
    __hash__ = int.__hash__

    @property
    def is_list(self) -> bool:
        return self not in (Layer.ALL_VALID_ITEM, Layer.NULLABLE_ITEM)

    @property
    def nullable(self) -> bool:
        return self in (Layer.NULLABLE_ITEM, Layer.NULLABLE_LIST, Layer.NULL_AND_EMPTY_LIST)

    @property
    def num_levels(self) -> int:
        """Number of definition levels that the layer takes."""
        if self in (Layer.ALL_VALID_ITEM, Layer.ALL_VALID_LIST):
            return 0
        return 2 if self is Layer.NULL_AND_EMPTY_LIST else 1


def parse_layers(numbers: Iterable[int]) -> tuple[Layer, ...]:
    """Return the layers of a page from the numbers in its message, leaf first.

    Raises UnsupportedEncodingError: a number is not known to this release.
    """
    return _layers(tuple(numbers))


@lru_cache(maxsize=1024)
def _layers(numbers: tuple[int, ...]) -> tuple[Layer, ...]:
    try:
        return tuple(Layer(number) for number in numbers)
    except ValueError as error:
        raise UnsupportedEncodingError(f"unknown repetition/definition layer: {error}") from None


def layer_numbers(layers: Iterable[Layer]) -> list[Any]:
    """Return the numbers of layers for a page's message."""
    return [int(layer) for layer in layers]


@lru_cache(maxsize=1024)
def max_definition(layers: tuple[Layer, ...]) -> int:
    """Return the highest definition level that `layers` can produce."""
    return sum(layer.num_levels for layer in layers)


@lru_cache(maxsize=1024)
def max_repetition(layers: tuple[Layer, ...]) -> int:
    """Return the repetition level that starts a new row: the number of list layers."""
    return sum(layer.is_list for layer in layers)


@lru_cache(maxsize=1024)
def max_visible_definition(layers: tuple[Layer, ...]) -> int:
    """Return the highest definition level of an entry that has a leaf slot."""
    total = 0
    for layer in layers:
        if layer.is_list:
            break
        total += layer.num_levels
    return total


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of some whole rows of one leaf column.

    - `layers`: From the leaf outwards.
    - `repetition`, `definition`: None if the layers allow only level 0.
    """

    layers: tuple[Layer, ...]
    num_entries: int
    repetition: LevelArray | None = None
    definition: LevelArray | None = None

    @property
    def has_hidden(self) -> bool:
        """Whether there may be entries without a leaf slot."""
        return self.definition is not None and max_visible_definition(self.layers) < max_definition(
            self.layers
        )

    def visible(self) -> BoolArray | None:
        """Return which entries have a leaf slot; None if all have."""
        if self.definition is None or not self.has_hidden:
            return None
        visible: BoolArray = self.definition <= max_visible_definition(self.layers)
        return visible

    def entries_of(self, values: IndexArray) -> IndexArray:
        """Return the entries that hold some values, given by their numbers among all values."""
        visible = self.visible()
        if visible is None:
            return values
        hidden = np.flatnonzero(~visible)
        # Values before each hidden entry; entries with the same count follow later.
        before = hidden - np.arange(len(hidden))
        entries: IndexArray = values + np.searchsorted(before, values, side="right")
        return entries

    @staticmethod
    @lru_cache(maxsize=1024)
    def all_valid(layers: tuple[Layer, ...], num_entries: int) -> Levels:
        """Return the levels of entries of which none is null, below structs that take no level."""
        return Levels(layers, num_entries)

    def check(self) -> None:
        """Raise CorruptFileError if the layers cannot produce one of the levels."""
        for name, levels, limit in (
            ("repetition", self.repetition, max_repetition(self.layers)),
            ("definition", self.definition, max_definition(self.layers)),
        ):
            if levels is None:
                continue
            if len(levels) != self.num_entries:
                raise CorruptFileError(
                    f"{len(levels)} {name} levels for {self.num_entries} entries"
                )
            highest = int(levels.max(initial=0))
            if highest > limit:
                raise CorruptFileError(f"{name} level {highest} where {limit} is the highest")
        if self.repetition is None and max_repetition(self.layers) and self.num_entries:
            raise CorruptFileError("a page below a list has no repetition levels")


@dataclass(frozen=True, slots=True)
class Step:
    """The part of the column type that one layer describes.

    - `is_list`: A list (or the list of a map); otherwise the leaf, a struct, or a fixed-size list
      that holds structs.
    - `dimension`: For a fixed-size list that holds structs: items per list, which are slots of the
      layer inside. 1 for everything else.
    - `is_vector`: Whether it is such a fixed-size list, of any size.
    """

    is_list: bool = False
    dimension: int = 1
    is_vector: bool = False


#: The step of a leaf without layers around it.
_PLAIN = Step()


@dataclass(frozen=True, slots=True)
class LayerSlots:
    """The slots of one layer, in order: what Arrow stores for an array at that depth.

    - `validity`: None if no slot is null. The value of a slot below a null slot has no meaning.
    - `lengths`: For lists, the number of items of each; None for other layers. Their sum is the
      count of the layer inside.
    """

    count: int
    validity: BoolArray | None = None
    lengths: IndexArray | None = None


def unravel(levels: Levels, steps: Sequence[Step]) -> list[LayerSlots]:
    """Return the slots of every layer, leaf first.

    - `levels`: Of whole rows, already checked (`Levels.check`).
    - `steps`: The part of the type that each layer describes, leaf first.

    Raises CorruptFileError: the layers do not match the column type, or the levels do not describe
    whole lists. Raises UnsupportedEncodingError: lists together with a fixed-size list of structs:
    no known writer can produce them.
    """
    layers = levels.layers
    if [layer.is_list for layer in layers] != [step.is_list for step in steps]:
        names = ", ".join(layer.name for layer in layers)
        raise CorruptFileError(f"layers {names} do not fit the type of the column")
    if any(step.dimension != 1 for step in steps) and any(step.is_list for step in steps):
        raise UnsupportedEncodingError("lists together with a fixed-size list of structs")
    if len(steps) == 1 and levels.definition is None and steps[0] == _PLAIN:
        return [LayerSlots(levels.num_entries)]
    highest = max_definition(layers)
    repetition, definition, entries = levels.repetition, levels.definition, levels.num_entries
    below = 0
    slots: list[LayerSlots] = []
    fresh = True
    for depth, (layer, step) in enumerate(zip(layers, steps, strict=True)):
        if layer.is_list:
            if repetition is None:
                repetition = np.zeros(0, np.uint16)
            result, repetition, definition = _unravel_list(
                layers[depth:], repetition, definition, entries, below, highest
            )
            if result.lengths is not None and int(result.lengths.sum()) != slots[-1].count:
                raise CorruptFileError("levels count a null or empty list as an item")
            slots.append(result)
            entries, fresh = len(repetition), True
            below += layer.num_levels
            continue
        if fresh:
            layer_levels = definition
            if definition is not None:
                limit = below + max_visible_definition(layers[depth:])
                if limit < highest:
                    layer_levels = definition.compress(definition <= limit)
            count = entries if layer_levels is None else len(layer_levels)
            fresh = False
        if step.dimension != 1:
            if step.dimension < 1 or count % step.dimension:
                raise CorruptFileError(
                    f"{count} items do not make fixed-size lists of {step.dimension}"
                )
            count //= step.dimension
            layer_levels = None if layer_levels is None else layer_levels[:: step.dimension]
            entries, definition = count, layer_levels
        validity: BoolArray | None = None
        if layer.nullable and layer_levels is not None:
            validity = layer_levels <= below
        slots.append(LayerSlots(count, validity))
        below += layer.num_levels
    return slots


def _unravel_list(
    layers: Sequence[Layer],
    repetition: LevelArray,
    definition: LevelArray | None,
    entries: int,
    below: int,
    highest: int,
) -> tuple[LayerSlots, LevelArray, LevelArray | None]:
    # Flags are searched faster than numbers.
    starts = np.flatnonzero(repetition != 0)
    if entries and (not len(starts) or starts[0]):
        raise CorruptFileError("levels do not begin with the start of a list")
    counts = np.empty(len(starts), np.int64)
    if len(starts):
        np.subtract(starts[1:], starts[:-1], out=counts[:-1])
        counts[-1] = entries - starts[-1]
    outer = repetition.take(starts)
    outer -= np.uint16(1)
    if definition is None:
        return LayerSlots(len(starts), None, counts), outer, None
    layer = layers[0]
    levels = definition.take(starts)
    lengths = counts * (levels <= below)
    last_own = below + layer.num_levels
    valid = None
    if layer.nullable:
        # A list below a null struct is null as well: Arrow's slot there has no meaning of its own.
        valid = (levels != below + 1) & (levels <= last_own)
    limit = last_own + max_visible_definition(layers[1:])
    if limit < highest:
        visible = levels <= limit
        lengths = lengths.compress(visible)
        valid = None if valid is None else valid.compress(visible)
    return LayerSlots(len(lengths), valid, lengths), outer, levels
