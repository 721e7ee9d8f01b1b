"""WKT and WKB: what is written is read, and other bytes are refused."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_spark.predicates.coercion import NoCommonTypeError
from lance_spark.spatial.geometries import Box, bounding_boxes, from_wkb, from_wkt
from tests.support.tables.geometries import ENCODINGS, TYPES, column, geometry, wkb, wkt


@pytest.mark.parametrize("name", TYPES)
def test_both_texts_of_a_geometry_are_the_same(name: str) -> None:
    rng = random.Random(name)
    for _ in range(30):
        value = geometry(name, rng, 9)
        expected = from_wkt(wkt(value))
        assert from_wkb(wkb(value)) == from_wkb(wkb(value, ">")) == expected
        assert from_wkt(wkt(value).lower().replace(" (", "(").replace(", ", " ,\n")) == expected


def test_other_dimensions() -> None:
    expected = from_wkt("LINESTRING (1 2, 3 4)")
    for text in (
        "LINESTRING Z (1 2 9, 3 4 9)",
        "LINESTRING M (1 2 9, 3 4 9)",
        "LINESTRINGZM(1 2 9 9, 3 4 9 9)",
        "linestring zm (1 2 9 9, 3 4 9 9)",
    ):
        assert from_wkt(text) == expected
    values = struct.pack("<6d", 1, 2, 9, 3, 4, 9)
    for number in (1002, 2002, 2 | 1 << 31, 2 | 1 << 30):
        assert from_wkb(struct.pack("<BII", 1, number, 2) + values) == expected
    srid = struct.pack("<BIII", 1, 2 | 1 << 31 | 1 << 29, 4326, 2)
    assert from_wkb(srid + values) == expected


@given(st.binary(max_size=60), st.integers(0, 59), st.sampled_from(TYPES))
def test_damaged_bytes_are_refused(noise: bytes, place: int, name: str) -> None:
    data = wkb(geometry(name, random.Random(3), 9))
    for changed in (noise, data[:place] + noise[:2] + data[place + 2 :], data[:place]):
        try:
            from_wkb(changed)
        except NoCommonTypeError:
            continue


@given(st.text(alphabet="POINTLESYGMUZ (),0123.-e", max_size=40))
def test_other_texts_are_refused(text: str) -> None:
    try:
        from_wkt(text)
    except NoCommonTypeError:
        return


def test_boxes() -> None:
    assert from_wkt("LINESTRING (1 9, 3 4, 2 2)").box == Box(1, 2, 3, 9)
    for encoding in ENCODINGS:
        if encoding in ("wkb", "wkt"):
            pytest.importorskip("shapely")
        rng = random.Random(encoding)
        name = encoding.upper() if encoding.upper() in TYPES else "POLYGON"
        values = [geometry(name, rng, 9, box=encoding == "box") for _ in range(50)]
        array = column([None, *values, None], encoding)
        boxes = bounding_boxes(array.slice(1), encoding)
        assert boxes.not_empty.tolist() == [True] * 50 + [False]
        for number, value in enumerate(values):
            sides = tuple(float(side[number]) for side in boxes)
            assert sides == from_wkt(wkt(value)).box
    assert bounding_boxes(pa.nulls(0, pa.binary()), "wkb").not_empty.tolist() == []
