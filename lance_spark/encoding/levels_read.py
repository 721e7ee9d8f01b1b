"""Unravels repetition and definition levels to validity and list lengths, from the leaf outwards.

After the innermost list is taken off, its first entries stand for the lists themselves: one entry
per slot of the next layer, with the repetition level lowered by one. An entry whose definition
level belongs to a layer above the next list has no slot there, but stays until that layer is
reached.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lance_spark.encoding.levels import (
    BoolArray,
    Layer,
    LayerSlots,
    LevelArray,
    Levels,
    Step,
    max_definition,
    max_visible_definition,
)
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError


def unravel(levels: Levels, steps: Sequence[Step]) -> list[LayerSlots]:
    """Return the slots of every layer, leaf first.

    Parameters
    ----------
    levels : Levels
        Of whole rows, already checked (`Levels.check`).
    steps : sequence of Step
        The part of the type that each layer describes, leaf first.

    Raises
    ------
    CorruptFileError
        The layers do not match the column type, or the levels do not describe whole lists.
    UnsupportedEncodingError
        Lists together with a fixed-size list of structs: no known writer can produce them.
    """
    layers = levels.layers
    if [layer.is_list for layer in layers] != [step.is_list for step in steps]:
        names = ", ".join(layer.name for layer in layers)
        raise CorruptFileError(f"layers {names} are not those of the column's type")
    if any(step.dimension != 1 for step in steps) and any(step.is_list for step in steps):
        raise UnsupportedEncodingError("lists together with a fixed-size list of structs")
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
            count, layer_levels = _decimate(count, layer_levels, step.dimension)
            entries, definition = count, layer_levels
        validity: BoolArray | None = None
        if layer.nullable and layer_levels is not None:
            validity = layer_levels <= below
        slots.append(LayerSlots(count, validity))
        below += layer.num_levels
    return slots


def _decimate(
    count: int, definition: LevelArray | None, dimension: int
) -> tuple[int, LevelArray | None]:
    if dimension < 1 or count % dimension:
        raise CorruptFileError(f"{count} items do not make fixed-size lists of {dimension}")
    return count // dimension, None if definition is None else definition[::dimension]


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
