"""Functions of geometries keep the rows that pylance keeps."""

from __future__ import annotations

import random
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from tests.support.cells import number_of
from tests.support.tables.geometries import (
    ENCODINGS,
    TYPES,
    Geometry,
    column,
    field,
    geometry,
    type_of,
    wkb,
    wkt,
)

RELATIONS = (
    "intersects",
    "disjoint",
    "contains",
    "within",
    "covers",
    "coveredby",
    "touches",
    "crosses",
    "overlaps",
    "equals",
)
LINES = ("LINESTRING", "MULTILINESTRING")
#: Literals of each type for each encoding.
LITERALS = number_of(1, 166)


def kept(path: Path, condition: str) -> list[int]:
    result = lance_spark.open_dataset(str(path)).to_table(["i"], filter=condition)
    ids: list[int] = result["i"].to_pylist()
    return ids


def pylance_kept(path: Path, condition: str) -> list[int]:
    ids: list[int] = lance.dataset(str(path)).to_table(["i"], filter=condition)["i"].to_pylist()
    return ids


def write(path: Path, values: list[Geometry | None], encoding: str) -> None:
    schema = pa.schema([pa.field("i", pa.int64()), field("g", encoding)])
    data = [pa.array(range(len(values))), column(values, encoding)]
    lance.write_dataset(pa.table(data, schema=schema), str(path))


def differ(relation: str, value: Geometry | None, literal: Geometry) -> bool:
    """Return whether pylance can be wrong: it computes where lines meet, and loses what they share."""
    return (
        relation in ("crosses", "overlaps")
        and value is not None
        and value[0] in LINES
        and literal[0] in LINES
    )


@pytest.mark.sample(5)
@pytest.mark.parametrize("size", [4, 1000])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_relations_are_those_of_pylance(tmp_path: Path, encoding: str, size: int) -> None:
    if encoding != "point":
        pytest.importorskip("shapely")
    rng = random.Random(f"{encoding} {size}")
    values = [
        geometry(type_of(encoding, rng), rng, size, box=encoding == "box")
        if rng.random() > 0.05
        else None
        for _ in range(150)
    ]
    write(tmp_path / "t", values, encoding)
    num_matches = 0
    for name in TYPES:
        for _ in range(LITERALS):
            literal = geometry(name, rng, size)
            for relation in RELATIONS:
                function = f"st_{relation}(g, ST_GeomFromText('{wkt(literal)}'))"
                for condition in (function, *[f"NOT {function}"] * (relation == "within")):
                    expected = set(pylance_kept(tmp_path / "t", condition))
                    different = expected ^ set(kept(tmp_path / "t", condition))
                    assert all(differ(relation, values[row], literal) for row in different), (
                        condition,
                        [values[row] for row in different],
                    )
                    num_matches += len(expected)
    assert num_matches


def test_points_on_edges_are_decided_exactly(tmp_path: Path) -> None:
    """Points beside edges by one unit in the last place."""
    rng = random.Random(7)
    corners = [(0.1, 0.1), (12.3, 0.7), (11.7, 9.9), (0.1, 0.1)]
    values: list[Geometry | None] = []
    for _ in range(400):
        (ax, ay), (bx, by) = rng.sample(corners[:3], 2)
        part = rng.random()
        x, y = ax + (bx - ax) * part, ay + (by - ay) * part
        values.append(("POINT", (x, y * (1 + rng.choice([-1, 0, 1]) * 2.0**-52))))
    write(tmp_path / "t", values, "point")
    counts = set()
    for literal in (("POLYGON", [corners]), ("LINESTRING", corners)):
        for relation in RELATIONS:
            condition = f"st_{relation}(g, '{wkt(literal)}')"
            assert kept(tmp_path / "t", condition) == pylance_kept(tmp_path / "t", condition)
            counts.add(len(kept(tmp_path / "t", condition)))
    assert len(counts) > 3


def test_two_columns(tmp_path: Path) -> None:
    pytest.importorskip("shapely")
    rng = random.Random(2)
    pairs = [tuple(geometry(rng.choice(TYPES), rng, 4) for _ in range(2)) for _ in range(300)]
    schema = pa.schema([pa.field("i", pa.int64()), field("g", "wkb"), field("h", "wkt")])
    left, right = (
        [pair[number] if rng.random() > 0.1 else None for pair in pairs] for number in (0, 1)
    )
    data = [pa.array(range(300)), column(left, "wkb"), column(right, "wkt")]
    lance.write_dataset(pa.table(data, schema=schema), str(tmp_path / "t"))
    for relation in RELATIONS:
        condition = f"st_{relation}(g, h)"
        different = set(kept(tmp_path / "t", condition)) ^ set(
            pylance_kept(tmp_path / "t", condition)
        )
        assert all(differ(relation, left[row], right[row] or ("", ())) for row in different)


def test_empty_geometries(tmp_path: Path) -> None:
    pytest.importorskip("shapely")
    lines = [("LINESTRING", []), ("LINESTRING", [(1.0, 1.0), (2.0, 2.0)]), None]
    places = [("MULTIPOINT", []), ("MULTIPOINT", [(1.0, 1.0)]), None]
    pairs = [(line, place) for line in lines for place in places]
    schema = pa.schema(
        [pa.field("i", pa.int64()), field("g", "linestring"), field("h", "multipoint")]
    )
    data = [
        pa.array(range(9)),
        column([line for line, _ in pairs], "linestring"),
        column([place for _, place in pairs], "multipoint"),
    ]
    lance.write_dataset(pa.table(data, schema=schema), str(tmp_path / "t"))
    for relation in RELATIONS:
        for other in ("h", "'POINT (1 1)'", "'LINESTRING (1 1, 2 2)'"):
            for condition in (f"st_{relation}(g, {other})", f"NOT st_{relation}(g, {other})"):
                expected = pylance_kept(tmp_path / "t", condition)
                assert kept(tmp_path / "t", condition) == expected, condition


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("points") / "t"
    values: list[Geometry | None] = [
        ("POINT", (float(x), float(y))) for x in range(5) for y in range(5)
    ]
    write(path, [*values, None], "wkb")
    return path


@pytest.mark.parametrize(
    "argument",
    [
        "ST_GeomFromText('POINT(1 1)')",
        "ST_GeometryFromText('point (1 1)')",
        "'POINT Z (1 1 5)'",
        "'POINT(1.0 1e0)'",
        "'MULTIPOINT (1 1, 3 3)'",
        "'MULTIPOINT ((1 1), (3 3))'",
        "'POLYGON ((0 0, 2 0, 2 2, 0 2))'",
        "ST_Point(1, 1.0)",
        "st_makepoint(1, 1)",
        f"ST_GeomFromWKB(X'{wkb(('POINT', (1.0, 1.0))).hex()}')",
        f"X'{wkb(('POINT', (1.0, 1.0)), '>').hex()}'",
        f"X'{wkb(('MULTIPOLYGON', [[[(0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (0.0, 0.0)]]]), '>').hex()}'",
    ],
)
def test_literals(points: Path, argument: str) -> None:
    for condition in (f"st_intersects(g, {argument})", f"st_disjoint({argument}, g)"):
        assert kept(points, condition) == pylance_kept(points, condition)
        assert kept(points, condition)


def test_nulls(points: Path) -> None:
    assert kept(points, "st_intersects(g, 'POINT (1 1)') IS NULL") == [25]
    assert kept(points, "st_intersects(g, NULL)") == []
    assert kept(points, "NOT st_intersects(g, ST_Point(NULL, 1))") == []


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("st_contains('POINT (1 1)', g)", r"write st_within\(column, geometry\)"),
        ("st_coveredby('POINT (1 1)', g)", r"write st_covers\(column, geometry\)"),
        ("st_intersects('POINT (1 1)', 'POINT (1 1)')", "takes a column and a geometry"),
        ("st_intersects(g, 'POINT EMPTY')", "an empty POINT is not supported"),
        ("st_intersects(g, 'GEOMETRYCOLLECTION (POINT (1 1))')", "GEOMETRYCOLLECTION are not"),
        ("st_intersects(g, 'POINT (1 1')", "is not the WKT of a geometry"),
        ("st_intersects(g, 'POINT (1 1) x')", "is not the WKT of a geometry"),
        ("st_intersects(g, 'POINT (1)')", "is not the WKT of a geometry"),
        ("st_intersects(g, 'POINT (1 2, 3 4)')", "is not the WKT of a geometry"),
        ("st_intersects(g, 'POINT (1 NaN)')", "a coordinate of the POINT is not finite"),
        ("st_intersects(g, 'LINESTRING (1 1)')", "less than two points"),
        ("st_intersects(g, 'POLYGON ((1 1, 2 2, 1 1))')", "less than three different points"),
        ("st_intersects(g, X'0102')", "is not the WKB of a geometry"),
        ("st_intersects(g, X'0102000000ffffffff')", "is not the WKB of a geometry"),
        ("st_intersects(g, X'01ff000000')", "is not the WKB of a geometry"),
        ("st_intersects(g, ST_GeomFromText(1))", "takes 1 literal of type string"),
        ("st_intersects(g, ST_Point(1))", "takes 2 literals of type number"),
        ("st_intersects(g, 1)", "takes columns of geometries"),
        ("st_intersects(i, 'POINT (1 1)')", "a column of type int64 without an extension type"),
        ("st_intersects(g)", "wrong number of arguments"),
        ("st_area(g) > 1", "the function st_area is not supported"),
    ],
)
def test_refusals(points: Path, condition: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        kept(points, condition)


def test_geometries_that_are_not_compared(tmp_path: Path) -> None:
    pytest.importorskip("shapely")
    collection = bytes([1]) + (7).to_bytes(4, "little") + (1).to_bytes(4, "little")
    schema = pa.schema([pa.field("i", pa.int64()), field("g", "wkb")])
    point = wkb(("POINT", (1.0, 1.0)))
    outer = [(0.0, 0.0), (5.0, 0.0), (5.0, 5.0), (0.0, 5.0), (0.0, 0.0)]
    hole = [(1.0, 1.0), (4.0, 1.0), (4.0, 4.0), (1.0, 4.0), (1.0, 1.0)]
    part = [(1.0, 3.0), (4.0, 4.0), (3.0, 3.0), (1.0, 3.0)]
    touching = wkb(("MULTIPOLYGON", [[outer, hole], [part]]))
    for number, (value, message) in enumerate(
        [
            (collection + point, "a value is a GEOMETRYCOLLECTION"),
            (touching, "a part of a MULTIPOLYGON touches a hole of another part"),
            (b"no", "a value is not a geometry"),
        ]
    ):
        path = tmp_path / str(number)
        data = [pa.array([0, 1]), pa.array([value, point])]
        lance.write_dataset(pa.table(data, schema=schema), str(path))
        with pytest.raises(InvalidInputError, match=f"filter on 'g': {message}"):
            kept(path, "st_covers(g, 'POINT (1 1)')")
        if number == 1:
            assert kept(path, "st_intersects(g, 'POINT (1 1)')") == [0, 1]
    write(tmp_path / "box", [("POLYGON", [[(0.0, 1.0)] * 5])], "box")
    assert kept(tmp_path / "box", "st_intersects(g, 'POINT (0 1)')") == [0]
    with pytest.raises(InvalidInputError, match="a value is a box without an area"):
        kept(tmp_path / "box", "st_covers(g, 'POINT (0 1)')")


def test_points_need_no_other_package(
    points: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "shapely", None)
    assert kept(points, "st_within(g, 'POLYGON ((0 0, 2 0, 2 2, 0 2))')") == [6]
    write(tmp_path / "t", [("LINESTRING", [(0.0, 0.0), (1.0, 1.0)])], "linestring")
    dataset = lance_spark.open_dataset(str(tmp_path / "t"))
    with pytest.raises(UnsupportedFeatureError, match=r"pip install 'lance-spark\[spatial\]'"):
        dataset.to_table(filter="st_intersects(g, 'POINT (1 1)')")
    # Lines far away are not compared.
    assert dataset.to_table(filter="st_intersects(g, 'POINT (9 9)')").num_rows == 0
