"""RTREE indexes: their files are those of pylance, and damaged files hide no row."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter
from lance.indices import IndexConfig

import lance_spark
from lance_spark.errors import LanceError
from lance_spark.indexes.cache import CACHE
from lance_spark.indexes.row_sets import RowSet
from lance_spark.indexes.rtree import files as rtree
from lance_spark.spatial.geometries import Box, Boxes
from tests.support.tables.geometries import column, field

CONDITION = "st_intersects(g, 'POLYGON ((3 3, 6 3, 6 6, 3 6))')"
FOUND = [row for row in range(200) if row % 9 and 3 <= row % 20 <= 6 and 3 <= row // 20 <= 6]
PAGES, NULLS = "page_data.lance", "nulls.lance"


def write(path: Path) -> None:
    values = [("POINT", (row % 20.0, row // 20.0)) if row % 9 else None for row in range(200)]
    schema = pa.schema([pa.field("i", pa.int64()), field("g", "point")])
    lance.write_dataset(
        pa.table([pa.array(range(200)), column(values, "point")], schema=schema),
        str(path),
        max_rows_per_file=90,
    )


def build(path: Path, who: str, page_size: int) -> None:
    if who == "own":
        lance_spark.open_dataset(str(path)).create_scalar_index("g", "RTREE", page_size=page_size)
    else:
        config = IndexConfig("rtree", {"page_size": page_size})
        lance.dataset(str(path)).create_scalar_index("g", config)


def content(path: Path, name: str) -> pa.Table:
    (file,) = path.glob(f"_indices/*/{name}")
    return LanceFileReader(str(file)).read_all().to_table()


def rewrite(path: Path, name: str, rows: pa.Table) -> None:
    (file,) = path.glob(f"_indices/*/{name}")
    file.unlink()
    with LanceFileWriter(str(file), rows.schema, version="2.1") as writer:
        writer.write_batch(rows)


def kept(path: Path, condition: str = CONDITION) -> list[int]:
    CACHE.clear()
    dataset = lance_spark.open_dataset(str(path))
    result: list[int] = dataset.to_table(["i"], filter=condition)["i"].to_pylist()
    return result


@pytest.mark.parametrize("page_size", [2, 7, 200, 4096])
def test_files_are_those_of_pylance(tmp_path: Path, page_size: int) -> None:
    files = {}
    for who in ("own", "pylance"):
        path = tmp_path / who
        write(path)
        build(path, who, page_size)
        pages, nulls = content(path, PAGES), content(path, NULLS)
        metadata = {key.decode(): value.decode() for key, value in pages.schema.metadata.items()}
        bbox, items = json.loads(metadata.pop("bbox")), int(metadata["num_items"])
        # The order on the curve is another one, as many points have one place on it.
        leaves = sorted(pages.slice(0, items).to_pylist(), key=lambda row: row["id"])
        branches = pages.slice(items)["id"].to_pylist()
        files[who] = (pages.schema, metadata, bbox, leaves, branches, nulls.schema, nulls)
    assert files["own"] == files["pylance"]


def test_the_curve_visits_neighbours() -> None:
    """All cells of a grid are visited, and each is beside the one before."""
    side = 64
    x, y = (
        axis.reshape(-1).astype(float) for axis in np.meshgrid(np.arange(side), np.arange(side))
    )
    order = rtree._hilbert_order(Boxes(x, y, x, y))
    steps = np.abs(np.diff(x[order])) + np.abs(np.diff(y[order]))
    assert sorted(order.tolist()) == list(range(side * side))
    # The grid of the index is finer than this one, so that the curve may leave a cell for another.
    assert np.mean(steps == 1) > 0.9


def test_boxes_of_any_size() -> None:
    largest = float(np.finfo(np.float64).max)
    sides = np.array([[-largest, 0.0, -np.inf, 5.0], [0.0, 0.0, 1.0, 5.0]])
    boxes = Boxes(sides[0], sides[1], np.array([largest, 0.0, 1.0, np.inf]), sides[1])
    assert sorted(rtree._hilbert_order(boxes).tolist()) == [0, 1, 2, 3]
    assert boxes.intersect(Box(6, 0, 7, 9)).tolist() == [True, False, False, True]


def test_few_pages_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "t")
    build(tmp_path / "t", "own", 8)
    read: list[range] = []
    original = rtree.read_rows

    def counted(file: Any, rows: range) -> Any:
        read.append(rows)
        return original(file, rows)

    monkeypatch.setattr(rtree, "read_rows", counted)
    assert kept(tmp_path / "t") == FOUND
    branches, *leaves = read
    assert branches.start == 177
    assert 0 < sum(map(len, leaves)) < 90


def _with(name: str, change: Callable[[list[Any]], list[Any]]) -> Callable[[pa.Table], pa.Table]:
    def edit(rows: pa.Table) -> pa.Table:
        values = pa.array(change(rows[name].to_pylist()), rows.schema.field(name).type)
        return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)

    return edit


def _metadata(**entries: str) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.replace_schema_metadata(
        {**(rows.schema.metadata or {}), **{key.encode(): value for key, value in entries.items()}}
    )


DAMAGES: list[tuple[str, Callable[[pa.Table], pa.Table]]] = [
    (PAGES, lambda rows: rows.slice(1)),
    (PAGES, lambda rows: rows.rename_columns(["box", "id"])),
    (PAGES, lambda rows: rows.set_column(1, "id", rows["id"].cast(pa.int64()))),
    (PAGES, lambda rows: rows.set_column(0, "bbox", pa.array(range(len(rows))))),
    (PAGES, _with("id", lambda ids: [*ids[:-4], 9, *ids[-3:]])),
    (PAGES, _metadata(page_size="1")),
    (PAGES, _metadata(page_size="many")),
    (PAGES, _metadata(page_size="99999999999")),
    (PAGES, _metadata(num_items="17")),
    (PAGES, _metadata(num_items=str(1 << 60))),
    (NULLS, lambda rows: rows.slice(1)),
    (NULLS, _with("nulls", lambda values: [value[:-3] for value in values])),
    (NULLS, lambda rows: pa.concat_tables([rows, rows])),
]


@pytest.mark.parametrize("number", range(len(DAMAGES)))
def test_damaged_files_are_ignored(
    tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t"
    write(path)
    build(path, "pylance", 8)
    name, damage = DAMAGES[number]
    rewrite(path, name, damage(content(path, name)))
    with caplog.at_level(logging.WARNING):
        assert kept(path) == FOUND
        assert kept(path, "g IS NULL") == list(range(0, 200, 9))
    assert "is ignored" in caplog.text
    result = lance_spark.open_dataset(str(path)).check_index("g_idx")
    assert not result.is_valid
    assert "cannot be read" in result.problems[0] or "another box or number" in result.problems[0]


def _moved(rows: pa.Table) -> pa.Table:
    def change(boxes: list[Any]) -> list[Any]:
        return [{**boxes[0], "xmax": 99.0}, *boxes[1:]]

    return _with("bbox", change)(rows)


def _small_page(rows: pa.Table) -> pa.Table:
    def change(boxes: list[Any]) -> list[Any]:
        return [*boxes[:180], {**boxes[180], "xmax": boxes[180]["xmin"]}, *boxes[181:]]

    return _with("bbox", change)(rows)


WRONG: list[tuple[str, Callable[[pa.Table], pa.Table], str, tuple[int, int, int]]] = [
    (PAGES, _moved, "with another box, or twice", (0, 2, 0)),
    (PAGES, _small_page, "the row of page 3 has another box", (0, 1, 0)),
    (PAGES, _with("id", lambda ids: [ids[1], *ids[1:]]), "with another box, or twice", (1, 1, 0)),
    (PAGES, _with("id", lambda ids: [1 << 40, *ids[1:]]), "does not have the row", (1, 0, 1)),
    (PAGES, _with("id", lambda ids: [0, *ids[1:]]), "with another box, or twice", (1, 1, 0)),
    (PAGES, _metadata(num_pages="3"), "num_pages must be", (0, 1, 0)),
    (PAGES, _metadata(bbox='{"minx":5,"miny":0,"maxx":9,"maxy":9}'), "bbox does not", (0, 1, 0)),
    (NULLS, _with("nulls", lambda _: [RowSet.of(np.array([0, 9], np.uint64)).encode()]), "does not have the row", (21, 0, 0)),
    (NULLS, _with("nulls", lambda _: [RowSet.of(np.arange(90, dtype=np.uint64)).encode()]), "has the row as null", (13, 80, 0)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_files_are_found(tmp_path: Path, number: int) -> None:
    path = tmp_path / "t"
    write(path)
    build(path, "pylance", 8)
    name, change, problem, counts = WRONG[number]
    rewrite(path, name, change(content(path, name)))
    result = lance_spark.open_dataset(str(path)).check_index("g_idx")
    assert problem in " ".join(result.problems)
    assert (result.missing, result.wrong, result.stale) == counts, result


def test_damaged_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path)
    build(path, "pylance", 8)
    rng = random.Random(1)
    for file in path.glob("_indices/*/*"):
        data = file.read_bytes()
        for _ in range(40):
            changed = bytearray(data)
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            file.write_bytes(changed[: rng.choice([len(data), rng.randrange(len(data))])])
            try:
                kept(path)
                kept(path, "g IS NULL")
                lance_spark.open_dataset(str(path)).check_index("g_idx")
            except LanceError:
                pytest.fail("a damaged index must not fail a query")
        file.write_bytes(data)


def test_a_missing_file_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "t"
    write(path)
    build(path, "own", 8)
    (file,) = path.glob(f"_indices/*/{PAGES}")
    file.unlink()
    with caplog.at_level(logging.WARNING):
        assert kept(path) == FOUND
    assert "index 'g_idx' is ignored" in caplog.text
