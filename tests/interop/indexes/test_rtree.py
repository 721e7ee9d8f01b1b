"""RTREE indexes: built here and used by pylance, built by pylance and used here."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.indices import IndexConfig

import lance_spark
from lance_spark.errors import (
    InvalidInputError,
    InvalidOptionError,
    UnsupportedFeatureError,
    UnsupportedTypeError,
)
from tests.support.tables.geometries import (
    ENCODINGS,
    Geometry,
    column,
    field,
    geometry,
    storage,
    type_of,
    wkt,
)

ROWS = 400
SIZE = 40
CONDITIONS = [
    *(f"st_intersects(g, '{wkt(geometry('POLYGON', random.Random(n), SIZE))}')" for n in range(3)),
    "st_within(g, 'POLYGON ((3 3, 20 3, 20 31, 3 31, 3 3))') OR st_covers(g, 'POINT (5 5)')",
    "st_intersects(g, 'POINT (7 7)') AND i > 100",
    "st_touches(g, 'LINESTRING (1 1, 9 9, 9 30)')",
    "st_intersects('POLYGON ((100 100, 200 100, 200 200, 100 200))', g)",
    "g IS NULL",
]


def rows(first: int, count: int, encoding: str, *, all_null: bool = False) -> pa.Table:
    rng = random.Random(first)
    values: list[Geometry | None] = [
        None
        if all_null or rng.random() < 0.1
        else geometry(type_of(encoding, rng), rng, SIZE, box=encoding == "box")
        for _ in range(count)
    ]
    schema = pa.schema([pa.field("i", pa.int64()), field("g", encoding)])
    data = [pa.array(range(first, first + count)), column(values, encoding)]
    return pa.table(data, schema=schema)


def build(path: Path, who: str, page_size: int = 16, column: str = "g") -> None:
    if who == "own":
        lance_spark.open_dataset(str(path)).create_scalar_index(
            column, "RTREE", page_size=page_size
        )
    else:
        config = IndexConfig("rtree", {"page_size": page_size})
        lance.dataset(str(path)).create_scalar_index(column, config, replace=True)


def kept(dataset: Any, condition: str, **options: Any) -> list[int]:
    return sorted(dataset.to_table(["i"], filter=condition, **options)["i"].to_pylist())


def assert_used(dataset: lance_spark.Dataset, condition: str) -> None:
    explained = dataset.explain(filter=condition)
    assert "_idx (RTREE)" in explained or explained.endswith("statistics rule out all rows")


def compare(path: Path, *, used: bool = True) -> None:
    """Compare each answer with that of a scan without indexes, and with those of pylance."""
    dataset, oracle = lance_spark.open_dataset(str(path)), lance.dataset(str(path))
    for condition in CONDITIONS:
        expected = kept(oracle, condition, use_scalar_index=False)
        assert kept(dataset, condition, use_scalar_index=False) == expected, condition
        assert kept(dataset, condition) == expected, condition
        assert kept(oracle, condition) == expected, condition
        if used:
            assert_used(dataset, condition)
            if not condition.startswith("st_intersects('"):
                assert "ScalarIndexQuery" in oracle.scanner(filter=condition).explain_plan()


def check(path: Path, rows: int | None = None) -> None:
    result = lance_spark.open_dataset(str(path)).check_index("g_idx")
    assert result.is_valid, result
    assert rows is None or result.num_rows == rows


SOURCES = [
    *((encoding, "2.1", False) for encoding in ENCODINGS),
    ("point", "2.2", True),
    ("polygon", "2.2", False),
    ("wkb", "2.0", False),
    ("wkb", "2.2", True),
]


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    ("encoding", "version", "stable", "who"),
    [
        *((*source, "own") for source in SOURCES),
        # The files are the same for all encodings.
        *((*source, "pylance") for source in SOURCES if source[0] in ("point", "box", "wkb")),
    ],
)
def test_both_clients_use_an_index(
    tmp_path: Path, encoding: str, version: str, stable: bool, who: str
) -> None:
    if encoding != "point":
        pytest.importorskip("shapely")
    path = tmp_path / "t"
    lance.write_dataset(
        rows(0, ROWS, encoding),
        str(path),
        max_rows_per_file=150,
        data_storage_version=version,
        enable_stable_row_ids=stable,
    )
    lance_spark.open_dataset(str(path)).delete("i % 7 = 6")
    build(path, who)
    check(path, ROWS - ROWS // 7)
    compare(path)
    lance_spark.open_dataset(str(path)).delete("i % 11 = 5")
    lance.dataset(str(path)).insert(rows(1000, 50, encoding))
    if stable:
        lance.dataset(str(path)).update({"i": "i + 5000"}, where="i % 13 = 1")
    compare(path)
    check(path)


@pytest.mark.sample(5)
@pytest.mark.parametrize("who", ["own", "pylance"])
@pytest.mark.parametrize("compactor", ["own", "pylance"])
@pytest.mark.parametrize(
    ("stable", "defer"),
    [(False, False), (False, True), (True, False)],
    ids=["plain", "deferred", "stable"],
)
def test_compacted_tables(
    tmp_path: Path, stable: bool, defer: bool, who: str, compactor: str
) -> None:
    path = tmp_path / "t"
    lance.write_dataset(
        rows(0, ROWS, "point"), str(path), max_rows_per_file=90, enable_stable_row_ids=stable
    )
    build(path, who)
    lance_spark.open_dataset(str(path)).delete("i % 7 = 3")
    if compactor == "own":
        lance_spark.open_dataset(str(path)).compact_files(defer_index_remap=defer)
    else:
        lance.dataset(str(path)).optimize.compact_files(defer_index_remap=defer)
    # pylance does not remap the index.
    is_used = stable or defer or compactor == "own"
    compare(path, used=is_used)
    check(path)
    lance.dataset(str(path)).insert(rows(1000, 30, "point"))
    compare(path, used=is_used)
    if who == "own":
        lance_spark.open_dataset(str(path)).optimize_indices()
    else:
        lance.dataset(str(path)).optimize.optimize_indices()
    compare(path)
    check(path)


@pytest.mark.parametrize("who", ["own", "pylance"])
def test_segments_are_extended_by_both_clients(tmp_path: Path, who: str) -> None:
    path = tmp_path / "t"
    lance.write_dataset(rows(0, ROWS, "point"), str(path), max_rows_per_file=100)
    lance_spark.open_dataset(str(path)).create_scalar_index(
        "g", "RTREE", num_segments=3, page_size=8
    )
    assert lance_spark.open_dataset(str(path)).describe_indices()[0].num_segments == 3
    compare(path)
    check(path, ROWS)
    lance.dataset(str(path)).insert(rows(1000, 60, "point"))
    if who == "own":
        lance_spark.open_dataset(str(path)).optimize_indices()
    else:
        lance.dataset(str(path)).optimize.optimize_indices()
    compare(path)
    check(path, ROWS + 60)
    oracle = lance.dataset(str(path))
    if who == "own":
        newest = oracle.describe_indices()[0].segments[-1]
        assert newest.dataset_version_at_last_update == oracle.version - 1


def test_no_rows_and_only_nulls(tmp_path: Path) -> None:
    for number, table in enumerate((rows(0, 0, "point"), rows(0, 20, "point", all_null=True))):
        for who in ("own", "pylance"):
            path = tmp_path / f"{who} {number}"
            lance.write_dataset(table, str(path))
            build(path, who)
            check(path, table.num_rows)
            compare(path, used=False)
            lance.dataset(str(path)).insert(rows(100, 40, "point"))
            compare(path, used=False)
            lance_spark.open_dataset(str(path)).optimize_indices()
            compare(path)
            check(path, table.num_rows + 40)


def test_an_index_without_rows_is_trained_later(tmp_path: Path) -> None:
    path = tmp_path / "t"
    lance.write_dataset(rows(0, ROWS, "point"), str(path))
    dataset = lance_spark.open_dataset(str(path)).create_scalar_index("g", "RTREE", train=False)
    compare(path, used=False)
    dataset.optimize_indices()
    compare(path)


def test_a_child_of_a_struct(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = rows(0, ROWS, "point")
    inner = pa.StructArray.from_arrays(
        [table["g"].combine_chunks()], fields=[table.schema.field("g")]
    )
    schema = pa.schema([table.schema.field("i"), pa.field("s", inner.type)])
    lance.write_dataset(pa.table([table["i"], inner], schema=schema), str(path))
    for who in ("own", "pylance"):
        build(path, who, column="s.g")
        dataset = lance_spark.open_dataset(str(path))
        assert dataset.check_index("s.g_idx").is_valid
        for condition in CONDITIONS:
            text = condition.replace("g,", "s.g,").replace(" g)", " s.g)").replace("g IS", "s.g IS")
            expected = kept(lance.dataset(str(path)), text, use_scalar_index=False)
            assert kept(dataset, text) == expected
            assert_used(dataset, text)


def test_values_without_a_place(tmp_path: Path) -> None:
    """Points with NaN are in no index; an infinite bound hides all rows from pylance's own index."""
    path = tmp_path / "t"
    values = [(np.nan, np.nan), (1.0, 1.0), (np.inf, 1.0), (np.nan, 1.0), (-np.inf, np.nan)]
    data = column([("POINT", value) for value in values], "point")
    schema = pa.schema([pa.field("i", pa.int64()), field("g", "point")])
    lance.write_dataset(pa.table([pa.array(range(5)), data], schema=schema), str(path))
    condition = "st_intersects(g, 'POLYGON ((0 0, 2 0, 2 2, 0 2))')"
    build(path, "own")
    check(path)
    for dataset in (lance_spark.open_dataset(str(path)), lance.dataset(str(path))):
        assert kept(dataset, condition) == [1]
    build(path, "pylance")
    dataset = lance_spark.open_dataset(str(path))
    assert kept(dataset, condition) == [1]
    assert "pylance does not find all rows" in dataset.check_index("g_idx").problems[0]


def test_other_coordinates(tmp_path: Path) -> None:
    """Points with z and m, and lists of them."""
    depths = pa.struct([pa.field(name, pa.float64(), nullable=False) for name in "xyzm"])
    for name, dtype in (("point", depths), ("multipoint", pa.list_(depths))):
        if name == "multipoint":
            pytest.importorskip("shapely")
        values: list[Any] = [
            dict(zip("xyzm", (float(x), float(y), 9.0, -9.0), strict=True))
            for x in range(20)
            for y in range(20)
        ]
        if name == "multipoint":
            values = [[value, value] for value in values]
        item = pa.field("g", dtype, metadata={"ARROW:extension:name": f"geoarrow.{name}"})
        schema = pa.schema([pa.field("i", pa.int64()), item])
        data = [pa.array(range(len(values))), pa.array(values, dtype)]
        lance.write_dataset(pa.table(data, schema=schema), str(tmp_path / name))
        build(tmp_path / name, "own")
        check(tmp_path / name)
        compare(tmp_path / name)


def test_columns_that_are_not_taken(tmp_path: Path) -> None:
    extension = {"ARROW:extension:name": "geoarrow.polygon"}
    other = {"ARROW:extension:name": "acme.thing"}
    for number, item in enumerate(
        [
            pa.field("g", pa.int32()),
            pa.field("g", storage("point")),
            pa.field("g", storage("point"), metadata=extension),
            pa.field("g", pa.list_(pa.float64())),
            pa.field("g", pa.binary(), metadata=other),
        ]
    ):
        path = tmp_path / str(number)
        schema = pa.schema([pa.field("i", pa.int64()), item])
        lance.write_dataset(
            pa.table([pa.array([1]), pa.nulls(1, item.type)], schema=schema), str(path)
        )
        dataset = lance_spark.open_dataset(str(path))
        with pytest.raises(UnsupportedTypeError, match="a RTREE index does not take column 'g'"):
            dataset.create_scalar_index("g", "RTREE")


def test_texts_that_are_not_geometries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("shapely")
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"g": ["POINT (1 1)", "LINESTRING (0 0, 1 1)"]}), path)
    dataset = lance_spark.open_dataset(path).create_scalar_index("g", "RTREE")
    assert dataset.check_index("g_idx").is_valid
    monkeypatch.setitem(sys.modules, "shapely", None)
    with pytest.raises(InvalidInputError, match=r"cannot be checked: .* the package shapely"):
        dataset.check_index("g_idx")
    with pytest.raises(UnsupportedFeatureError, match=r"pip install 'lance-spark\[spatial\]'"):
        dataset.create_scalar_index("g", "RTREE")
    monkeypatch.undo()
    lance.write_dataset(pa.table({"g": ["no"]}), path, mode="overwrite")
    with pytest.raises(InvalidInputError, match="RTREE index: a value is not a geometry"):
        lance_spark.open_dataset(path).create_scalar_index("g", "RTREE")


@pytest.mark.parametrize("options", [{"page_size": 1}, {"page_size": True}, {"pages": 3}])
def test_options(tmp_path: Path, options: dict[str, Any]) -> None:
    lance.write_dataset(rows(0, 3, "point"), str(tmp_path / "t"))
    dataset = lance_spark.open_dataset(str(tmp_path / "t"))
    with pytest.raises(InvalidOptionError, match=r"from 2 to|the options are page_size"):
        dataset.create_scalar_index("g", "RTREE", **options)


@pytest.mark.sample(3)
@pytest.mark.parametrize("who", ["own", "pylance"])
@pytest.mark.parametrize("encoding", ["wkb", "point"])
def test_values_of_overlays_that_are_newer(
    tmp_path: Path, who: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without this variable, pylance refuses tables with overlays, because they are experimental.
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    path = tmp_path / "t"
    lance.write_dataset(rows(0, ROWS, encoding), str(path), max_rows_per_file=150)
    build(path, who)
    new = rows(9000, ROWS, encoding)["g"].combine_chunks().drop_null()
    lance_spark.open_dataset(str(path)).update(
        {"g": lambda batch: new.slice(0, batch.num_rows)},
        "i % 9 = 4 AND g IS NOT NULL",
        mode="overlay",
    )
    compare(path)
    # The index has been built on the overlay.
    build(path, "pylance")
    compare(path)
