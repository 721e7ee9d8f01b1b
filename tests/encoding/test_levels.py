"""Levels against the rules of the format, spelled out value by value, and back to Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.encoding.levels import Layer, Levels, Step, parse_layers, unravel
from lance_spark.encoding.v2_1.leaf_columns import leaf_fields
from lance_spark.encoding.v2_1.shred import shred
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError, UnsupportedTypeError
from tests.support.cells import number_of

TYPES = [
    pa.int32(),
    pa.list_(pa.int32()),
    pa.list_(pa.list_(pa.int32())),
    pa.struct([("a", pa.int32())]),
    pa.struct([("a", pa.struct([("b", pa.int32())]))]),
    pa.list_(pa.struct([("a", pa.int32())])),
    pa.struct([("a", pa.list_(pa.int32()))]),
    pa.list_(pa.struct([("a", pa.list_(pa.struct([("b", pa.int32())])))])),
    pa.large_list(pa.list_(pa.list_(pa.int32()))),
]


def values(dtype: pa.DataType) -> st.SearchStrategy[Any]:
    if pat.is_struct(dtype):
        inner = st.fixed_dictionaries({f.name: values(f.type) for f in dtype})
    elif pat.is_list(dtype) or pat.is_large_list(dtype):
        inner = st.lists(values(dtype.value_type), max_size=4)
    else:
        inner = st.integers(0, 9)
    return st.none() | inner


def rows_of(dtype: pa.DataType) -> st.SearchStrategy[tuple[pa.DataType, list[Any]]]:
    return st.lists(values(dtype), max_size=12).map(lambda rows: (dtype, rows))


def slow_levels(dtype: pa.DataType, rows: list[Any]) -> tuple[list[int], list[int], list[Layer]]:
    """Walk every value; note the states of each layer, then number the levels from the leaf
    outwards.
    """
    nodes: list[pa.DataType] = []
    node = dtype
    while True:
        nodes.append(node)
        if pat.is_struct(node):
            node = node.field(0).type
        elif pat.is_list(node) or pat.is_large_list(node):
            node = node.value_type
        else:
            break
    entries: list[tuple[int, tuple[int, str] | None]] = []
    lists = [i for i, n in enumerate(nodes) if pat.is_list(n) or pat.is_large_list(n)]

    def walk(depth: int, value: Any, rep: int) -> None:
        node = nodes[depth]
        if value is None:
            entries.append((rep, (depth, "null")))
        elif pat.is_struct(node):
            walk(depth + 1, value[node.field(0).name], rep)
        elif depth in lists:
            if not value:
                entries.append((rep, (depth, "empty")))
            level = len(lists) - lists.index(depth) - 1
            for i, item in enumerate(value):
                walk(depth + 1, item, rep if i == 0 else level)
        else:
            entries.append((rep, None))

    for row in rows:
        walk(0, row, len(lists))
    seen = {entry for _, entry in entries if entry}
    # Slots below a null are null too, down to the next list.
    for depth in [depth for depth, state in seen if state == "null"]:
        if depth not in lists:
            for inner in range(depth + 1, len(nodes)):
                seen.add((inner, "null"))
                if inner in lists:
                    break
    # Nullable structs around lists always have a level for null, and so have the lists.
    for depth, node in enumerate(nodes):
        below = [inner for inner in lists if inner > depth]
        if pat.is_struct(node) and below:
            seen |= {(inner, "null") for inner in (depth, *below)}
    number: dict[tuple[int, str], int] = {}
    layers: list[Layer] = []
    for depth in reversed(range(len(nodes))):
        null, empty = (depth, "null") in seen, (depth, "empty") in seen
        for entry in [(depth, "null")] * null + [(depth, "empty")] * empty:
            number[entry] = len(number) + 1
        if depth in lists:
            layers.append(
                {
                    (False, False): Layer.ALL_VALID_LIST,
                    (True, False): Layer.NULLABLE_LIST,
                    (False, True): Layer.EMPTYABLE_LIST,
                    (True, True): Layer.NULL_AND_EMPTY_LIST,
                }[null, empty]
            )
        else:
            layers.append(Layer.NULLABLE_ITEM if null else Layer.ALL_VALID_ITEM)
    return (
        [rep for rep, _ in entries],
        [number[entry] if entry else 0 for _, entry in entries],
        layers,
    )


def as_lists(slots: list[Any], steps: tuple[Step, ...], leaf: list[Any]) -> list[Any]:
    """Put values and slots together again, one layer at a time."""
    result = leaf
    for slot, step in zip(slots, steps, strict=True):
        if step.is_list:
            cut, at = [], 0
            for length in slot.lengths.tolist():
                cut.append(result[at : at + length])
                at += length
            assert at == len(result)
            result = cut
        assert len(result) == slot.count
        if slot.validity is not None:
            result = [v if ok else None for v, ok in zip(result, slot.validity, strict=True)]
    return result


def without_structs(dtype: pa.DataType, value: Any) -> Any:
    if value is None:
        return None
    if pat.is_struct(dtype):
        return without_structs(dtype.field(0).type, value[dtype.field(0).name])
    if pat.is_list(dtype) or pat.is_large_list(dtype):
        return [without_structs(dtype.value_type, v) for v in value]
    return value


@pytest.mark.slow
@settings(max_examples=number_of(120, 300))
@given(st.sampled_from(TYPES).flatmap(rows_of))
def test_levels_are_those_of_the_rules(case: tuple[pa.DataType, list[Any]]) -> None:
    dtype, rows = case
    (column,) = shred(pa.array(rows, dtype), pa.field("x", dtype))
    repetition, definition, layers = slow_levels(dtype, rows)
    levels = column.levels
    assert list(levels.layers) == layers
    assert levels.num_entries == len(repetition)
    if levels.repetition is None:
        assert not any(repetition)
    else:
        assert levels.repetition.tolist() == repetition
    if levels.definition is None:
        assert not any(definition)
    else:
        assert levels.definition.tolist() == definition


@pytest.mark.slow
@settings(max_examples=number_of(120, 300))
@given(st.sampled_from(TYPES).flatmap(rows_of), st.integers(0, 3), st.integers(0, 3))
def test_slots_rebuild_the_rows(case: tuple[pa.DataType, list[Any]], skip: int, drop: int) -> None:
    dtype, rows = case
    array = pa.array([None] * skip + rows + [None] * drop, dtype).slice(skip, len(rows))
    (column,) = shred(array, pa.field("x", dtype))
    column.levels.check()
    (leaf,) = leaf_fields(pa.field("x", dtype))
    slots = unravel(column.levels, leaf.steps)
    leaves = [
        v if column.live is None or column.live[i] else None
        for i, v in enumerate(column.values.to_pylist())
    ]
    assert as_lists(slots, leaf.steps, leaves) == [without_structs(dtype, row) for row in rows]


def test_levels_that_no_layer_can_produce_are_refused() -> None:
    layers = (Layer.NULLABLE_ITEM, Layer.ALL_VALID_LIST)
    bad = [
        (Levels(layers, 2, np.array([1, 2], np.uint16), None), "repetition level 2"),
        (Levels(layers, 2, np.array([1, 0], np.uint16), np.array([2, 0], np.uint16)), "definition"),
        (Levels(layers, 3, np.array([1, 0], np.uint16), None), "2 repetition levels for 3"),
        (Levels(layers, 3, None, None), "no repetition levels"),
    ]
    for levels, message in bad:
        with pytest.raises(CorruptFileError, match=message):
            levels.check()


def test_levels_must_begin_with_a_list_and_fit_the_type() -> None:
    steps = (Step(), Step(is_list=True))
    layers = (Layer.ALL_VALID_ITEM, Layer.ALL_VALID_LIST)
    with pytest.raises(CorruptFileError, match="begin with the start of a list"):
        unravel(Levels(layers, 2, np.array([0, 1], np.uint16), None), steps)
    with pytest.raises(CorruptFileError, match="do not fit the type of the column"):
        unravel(Levels(layers, 2, np.array([1, 1], np.uint16), None), (Step(), Step()))


def test_unknown_layers_are_refused() -> None:
    with pytest.raises(UnsupportedEncodingError, match="9"):
        parse_layers([1, 9])


def test_lists_and_fixed_size_lists_of_structs_do_not_mix() -> None:
    dtype = pa.list_(pa.list_(pa.struct([("a", pa.int8())]), 2))
    with pytest.raises(UnsupportedTypeError, match=r"'x\.item\.item\.a'"):
        shred(pa.array([[[{"a": 1}, {"a": 2}]]], dtype), pa.field("x", dtype))
