"""Sparse structure: pages of pylance, read by all rows, some rows and ranges; and contradictory
structures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.encoding.levels import Step
from lance_spark.encoding.meta import ColumnMeta, PageMeta
from lance_spark.encoding.v2_3.field import open_field
from lance_spark.encoding.v2_3.sparse import SparseSlots, num_payloads, parse_shapes
from lance_spark.errors import CorruptFileError, LanceError, UnsupportedEncodingError
from lance_spark.file.reader import FileReader
from lance_spark.proto import encodings_v2_1_pb2 as pb21
from lance_spark.proto import encodings_v2_3_pb2 as pb
from lance_spark.storage.local import LocalSource
from lance_spark.storage.source import ByteRange, run_plans
from tests.encoding.v2_3.pages import SPARSE, WrittenPage, lists_of, nulls_at, pages_of, wide
from tests.encoding.v2_3.pages import write_file as write

NULLS = pb.SparseValiditySet.SPARSE_VALIDITY_NULL_POSITIONS
VALID = pb.SparseValiditySet.SPARSE_VALIDITY_VALID_POSITIONS
CE = pb21.CompressiveEncoding
EMPTY = CE(constant=pb21.Constant())
LEAF, LIST = Step(), Step(is_list=True)


def steps(start: int, step: int) -> CE:
    return CE(range=pb21.Range(uncompressed_bits_per_value=64, start=start, step=step))


def same(value: int) -> CE:
    return CE(constant=pb21.Constant(value=value.to_bytes(8, "little")))


def validity(meaning: int = NULLS, positions: CE = EMPTY, count: int = 0) -> pb.SparseValiditySet:
    return pb.SparseValiditySet(meaning=meaning, positions=positions, num_positions=count)


def item(own_validity: pb.SparseValiditySet | None = None) -> pb.SparseStructuralLayer:
    return pb.SparseStructuralLayer(validity=own_validity or validity())


def lists(
    children: int,
    positions: CE,
    count: int,
    counts: CE,
    own_validity: pb.SparseValiditySet | None = None,
) -> pb.SparseStructuralLayer:
    layer = pb.SparseListLayer(
        num_child_slots=children,
        non_empty_positions=positions,
        num_non_empty_positions=count,
        counts=counts,
        validity=own_validity or validity(),
    )
    return pb.SparseStructuralLayer(list=layer)


def vectors(
    dimension: int, own_validity: pb.SparseValiditySet | None = None
) -> pb.SparseStructuralLayer:
    layer = pb.SparseFixedSizeListLayer(dimension=dimension, validity=own_validity or validity())
    return pb.SparseStructuralLayer(fixed_size_list=layer)


def opened(rows: int, column: list[Step], *layers: pb.SparseStructuralLayer) -> SparseSlots:
    return SparseSlots(parse_shapes(pb.SparseStructure(layers=layers), rows, column), [])


def test_slots_of_some_rows() -> None:
    # Rows 1, 4, 7 hold three items each; row 2 is null, and so is every second item from item 1 on.
    slots = opened(
        9,
        [LEAF, LIST],
        lists(9, steps(1, 3), 3, same(3), validity(NULLS, same(2), 1)),
        item(validity(NULLS, steps(1, 2), 4)),
    )
    whole = slots.select(range(9))
    leaf, outer = whole.slots
    assert outer.lengths is not None
    assert outer.lengths.tolist() == [0, 3, 0, 0, 3, 0, 0, 3, 0]
    assert outer.validity is not None
    assert np.flatnonzero(~outer.validity).tolist() == [2]
    assert leaf.validity is not None
    assert leaf.validity.tolist() == [True, False] * 4 + [True]
    assert whole.leaf == range(9)
    some = slots.select(np.array([2, 4, 8]))
    assert np.asarray(some.leaf).tolist() == [3, 4, 5]
    assert some.live.tolist() == [False, True, False]
    assert some.slots[1].validity is not None
    assert some.slots[1].validity.tolist() == [False, True, True]
    part = slots.select(range(3, 8))
    assert part.leaf == range(3, 9)
    assert part.live.tolist() == [False, True, False, True, False, True]


def test_null_vectors_have_slots_that_are_not_live() -> None:
    slots = opened(
        3, [LEAF, Step(dimension=2)], vectors(2, validity(VALID, steps(0, 2), 2)), item()
    )
    result = slots.select(range(3))
    assert result.live.tolist() == [True, True, False, False, True, True]
    assert result.slots[0].validity is None
    picked = slots.select(np.array([1, 2]))
    assert np.asarray(picked.leaf).tolist() == [2, 3, 4, 5]
    assert picked.live.tolist() == [False, False, True, True]


def test_described_rows_take_no_memory() -> None:
    rows = 1 << 50
    slots = opened(rows, [LEAF, LIST], lists(rows, steps(0, 2), rows // 2, same(2)), item())
    result = slots.select(np.array([6, 7, rows - 2]))
    assert np.asarray(result.leaf).tolist() == [6, 7, rows - 2, rows - 1]
    with pytest.raises(CorruptFileError, match="fewer rows"):
        slots.select(range(rows))


DAMAGED: dict[str, tuple[list[Step], list[pb.SparseStructuralLayer]]] = {
    "too few layers": ([LEAF, LIST], [item()]),
    "an item for a list": ([LEAF, LIST], [item(), item()]),
    "a list for an item": ([LEAF], [lists(1, same(0), 1, same(1))]),
    "an item for a vector": ([LEAF, Step(dimension=2)], [item(), item()]),
    "another dimension": ([LEAF, Step(dimension=2)], [vectors(3), item()]),
    "nothing": ([LEAF], [pb.SparseStructuralLayer()]),
    "no meaning": ([LEAF], [item(validity(0))]),
    "more nulls than slots": ([LEAF], [item(validity(NULLS, steps(0, 1), 11))]),
    "nulls beyond the end": ([LEAF], [item(validity(NULLS, steps(0, 2), 6))]),
    "nulls twice": ([LEAF], [item(validity(NULLS, same(1), 2))]),
    "more lists than slots": ([LEAF, LIST], [lists(11, steps(0, 1), 11, same(1)), item()]),
    "lists beyond the end": ([LEAF, LIST], [lists(6, steps(0, 2), 6, same(1)), item()]),
    "other counts": ([LEAF, LIST], [lists(5, steps(0, 2), 5, same(2)), item()]),
    "sums out of bounds": ([LEAF, LIST], [lists(1 << 63, steps(0, 2), 5, same(1 << 61)), item()]),
    "no counts": ([LEAF, LIST], [lists(5, steps(0, 2), 5, EMPTY), item()]),
    "no positions": ([LEAF], [item(validity(NULLS, CE(), 0))]),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_structures_that_contradict_themselves(name: str) -> None:
    column, layers = DAMAGED[name]
    with pytest.raises((CorruptFileError, UnsupportedEncodingError)):
        opened(10, column, *layers)


def test_buffers_are_those_of_what_is_stored() -> None:
    flat = CE(flat=pb21.Flat(bits_per_value=64))
    structure = pb.SparseStructure(
        layers=[
            lists(3, flat, 2, same(2), validity(NULLS, flat, 1)),
            item(validity(NULLS, flat, 1)),
        ]
    )
    shapes = parse_shapes(structure, 9, [LEAF, LIST])
    assert num_payloads(shapes) == 3


VALUES: dict[str, Callable[[], pa.Array]] = {
    "chunked": lambda: nulls_at(pa.array(range(3000)), 0.3),
    "zipped": lambda: nulls_at(wide(600), 0.4),
    "zipped_structs": lambda: nulls_at(
        pa.StructArray.from_arrays([nulls_at(wide(600), 0.3)], ["a"]), 0.3, seed=8
    ),
    "zipped_lists": lambda: lists_of(nulls_at(wide(600), 0.3), np.arange(300) % 5, 0.2),
    "zipped_under_null_vectors": lambda: nulls_at(
        pa.FixedSizeListArray.from_arrays(
            nulls_at(
                pa.StructArray.from_arrays(
                    [lists_of(nulls_at(wide(600), 0.2), np.arange(300) % 5)], ["l"]
                ),
                0.2,
            ),
            2,
        ),
        0.4,
        seed=6,
    ),
    "lists_of_vectors": lambda: lists_of(
        pa.FixedSizeListArray.from_arrays(
            pa.StructArray.from_arrays([nulls_at(pa.array(range(900)), 0.3)], ["a"]), 3
        ),
        np.arange(90) % 5,
    ),
    "nothing_but_nulls": lambda: pa.array([{"a": []}, {"a": None}, None] * 200),
    "one_valid": lambda: pa.array([None] * 400 + ["x" * 5000] + [None] * 99),
}


@pytest.mark.parametrize("name", VALUES)
def test_rows_of_pylance(tmp_path: Path, name: str) -> None:
    array = VALUES[name]()
    path = tmp_path / "f.lance"
    write(path, array, SPARSE)
    assert {page.structure for page in pages_of(path.read_bytes())} == {"sparse"}
    rng = np.random.default_rng(2)
    for _ in range(4):
        # A new reader each time: the result must not depend on earlier reads.
        reader = FileReader.open(LocalSource(str(path)))
        fields = reader.schema.fields
        rows = np.unique(rng.integers(0, len(array), 9))
        start, stop = sorted(rng.choice(len(array) + 1, 2, replace=False).tolist())
        for wanted, expected in (
            (rows, array.take(pa.array(rows))),
            (range(start, stop), array.slice(start, stop - start)),
            (range(len(array)), array),
            (rows, array.take(pa.array(rows))),
        ):
            (values,) = reader.read(fields, wanted)
            values.validate(full=True)
            assert values.equals(expected)


def test_values_that_are_not_for_the_slots(tmp_path: Path) -> None:
    """The page has one position fewer than zipped values."""
    array = pa.array([None, b"x" * 4000, None, b"y" * 5000, None, b"z" * 6000])
    path = tmp_path / "f.lance"
    write(path, array, SPARSE)
    (page,) = pages_of(path.read_bytes())
    assert page.values == "zipped"
    source = LocalSource(str(path))
    ranges = _ranges(path, page)
    page.layout.structure.sparse.layers[0].validity.num_positions -= 1
    meta = PageMeta(
        tuple(ByteRange(a, n) for a, n in ranges), 6, 0, page.layout.SerializeToString()
    )
    field = pa.field("c", pa.binary())
    for rows in (range(6), np.array([1, 4])):
        reader = open_field(field, [ColumnMeta((meta,))], "f")
        with pytest.raises(CorruptFileError, match="other slots"):
            run_plans(source, [reader.read(rows)])
    short = replace(meta, buffers=meta.buffers[:-1])
    with pytest.raises(LanceError, match="buffers"):
        run_plans(source, [open_field(field, [ColumnMeta((short,))], "f").read(range(6))])


def _ranges(path: Path, page: WrittenPage) -> list[tuple[int, int]]:
    data = path.read_bytes()
    return [(data.index(buffer.tobytes()), len(buffer)) for buffer in page.buffers]
