"""Points against geometries, compared with a slow model in whole fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_spark.spatial import predicates
from lance_spark.spatial.geometries import Geometry, from_wkt

Pair = tuple[float, float]


def turn(a: Pair, b: Pair, p: Pair) -> int:
    """Return on which side of an edge a point is, without any error."""
    ax, ay, bx, by, px, py = map(Fraction, (*a, *b, *p))
    total = (ax - px) * (by - py) - (ay - py) * (bx - px)
    return (total > 0) - (total < 0)


def place(polygon: list[list[Pair]], p: Pair) -> int:
    """Return the place of a point by the crossings of a ray, in fractions."""
    inside = False
    for ring in polygon:
        for a, b in pairwise(ring):
            side = turn(a, b, p)
            between = [min(a[axis], b[axis]) <= p[axis] <= max(a[axis], b[axis]) for axis in (0, 1)]
            if side == 0 and all(between):
                return predicates.BOUNDARY
            if (a[1] > p[1]) != (b[1] > p[1]) and (side > 0) == (b[1] > a[1]):
                inside = not inside
    return predicates.INTERIOR if inside else predicates.OUTSIDE


NEAR = st.integers(-3, 3).flatmap(
    lambda whole: st.integers(-4, 4).map(lambda steps: whole + steps * 2.0**-50)
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.one_of(NEAR, FINITE.filter(lambda value: value == 0 or 1e-100 < abs(value) < 1e250))


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=3))
def test_turns_are_exact(three: list[Pair]) -> None:
    a, b, p = three
    edge = np.array([[*a, *b]]).T
    with np.errstate(all="ignore"):
        turns = predicates._turns(edge, np.array([p[0]]), np.array([p[1]]))
    assert turns.tolist() == [turn(a, b, p)]


@given(st.lists(st.tuples(NEAR, NEAR), min_size=3, max_size=7), st.data())
def test_places_in_rings(corners: list[Pair], data: st.DataObject) -> None:
    ring = [*corners, corners[0]]
    some = data.draw(st.lists(st.one_of(st.tuples(NEAR, NEAR), st.sampled_from(ring)), min_size=1))
    stored = np.array(ring).tobytes()
    x, y = np.array(some).T
    places = predicates._places(x, y, Geometry("POLYGON", False, ((stored,),)))
    assert places.tolist() == [place([ring], p) for p in some]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("LINESTRING (0 0, 2 0, 2 2)", [1, 2, 2, 1, 0]),
        ("LINESTRING (0 0, 2 0, 2 2, 0 0)", [2, 2, 2, 2, 0]),
        ("MULTILINESTRING ((0 0, 2 0), (2 0, 2 2))", [1, 2, 2, 1, 0]),
        ("MULTILINESTRING ((0 0, 2 0), (2 0, 2 2), (-2 0, 0 0))", [2, 2, 2, 1, 0]),
        ("MULTIPOINT (0 0, 2 2)", [2, 0, 0, 2, 0]),
        ("POLYGON ((0 0, 2 0, 2 2))", [1, 1, 1, 1, 0]),
        ("MULTIPOLYGON (((0 -1, 5 -1, 5 3, 0 3)), ((9 9, 9 8, 8 8)))", [1, 2, 2, 2, 0]),
        ("POLYGON ((-9 -9, 9 -9, 9 9, -9 9), (0 0, 2 0, 2 2, 0 2))", [1, 1, 1, 1, 2]),
    ],
)
def test_places(text: str, places: list[int]) -> None:
    x, y = np.array([(0, 0), (1, 0), (2, 0), (2, 2), (-1, 0.5)], np.float64).T
    assert predicates._places(x, y, from_wkt(text)).tolist() == places


def test_points_are_compared_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    geometry = from_wkt("POLYGON ((0 0, 9 0, 9 9, 0 9), (2 2, 5 2, 5 5))")
    x, y = np.random.default_rng(1).integers(-1, 10, (2, 500)).astype(np.float64)
    expected = predicates._places(x, y, geometry)
    monkeypatch.setattr(predicates, "_BATCH_PAIRS", 64)
    assert np.array_equal(predicates._places(x, y, geometry), expected)
    assert set(expected.tolist()) == {0, 1, 2}
