"""`UPDATE` with the setting `spark.lance.update.mode`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import pytest
from pyspark.errors import PySparkException

import lance_spark

NAME = "update_modes"
MODE = "spark.lance.update.mode"
COLUMNS = "id BIGINT, v INT, p STRUCT<x: INT, y: INT>"
ROWS = "SELECT id, cast(id AS INT), if(id = 7, NULL, named_struct('x', 1, 'y', 8)) FROM range({})"


@pytest.fixture
def table(spark: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A table of two fragments, from which a row was deleted."""
    # Without this variable, pylance refuses tables with overlays, because they are experimental.
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    name = f"{NAME}.t{len(list(root.iterdir()))}"
    spark.sql(f"CREATE TABLE {name} ({COLUMNS}) TBLPROPERTIES ('enable_stable_row_ids' = 'true')")
    for bounds in ("0, 20, 1, 1", "20, 40, 1, 1"):
        spark.sql(f"INSERT INTO {name} {ROWS.format(bounds)}")
    spark.sql(f"DELETE FROM {name} WHERE id = 3")
    yield name
    spark.conf.unset(MODE)


def path_of(root: Path, table: str) -> str:
    return str(root / f"{table.partition('.')[2]}.lance")


def rows(root: Path, table: str) -> dict[int, dict[str, Any]]:
    """Return the rows by `id`, with their addresses, as both clients read them."""
    ours = lance_spark.open_dataset(path_of(root, table))
    ours.validate()
    read = ours.to_table(with_row_address=True).to_pylist()
    assert read == lance.dataset(ours.uri).to_table(with_row_address=True).to_pylist()
    return {row["id"]: row for row in read}


def files_of(root: Path, table: str) -> list[tuple[int, int]]:
    """Return the numbers of data files and of overlays of each fragment."""
    fragments = lance_spark.open_dataset(path_of(root, table)).fragments
    return [(len(part.files), len(part.to_proto().overlays)) for part in fragments]


@pytest.mark.parametrize(
    ("mode", "files"),
    [
        ("overlay", [(1, 1), (1, 1)]),
        ("columns", [(2, 0), (2, 0)]),
        ("rows", [(1, 0), (1, 0), (1, 0)]),
        ("auto", [(1, 0), (1, 0), (1, 0)]),
    ],
)
def test_the_mode_of_the_session(
    spark: Any, root: Path, table: str, mode: str, files: list[tuple[int, int]]
) -> None:
    expected = rows(root, table)
    # Also in SQL: SET is a statement.
    spark.sql(f"SET {MODE} = {mode}")
    spark.sql(f"UPDATE {table} SET v = v * 2, p.x = id WHERE id IN (2, 8, 25)")
    for number in (2, 8, 25):
        expected[number] |= {"v": 2 * number, "p": {**expected[number]["p"], "x": number}}
    table_rows = rows(root, table)
    if mode in ("rows", "auto"):
        for row in (*table_rows.values(), *expected.values()):
            del row["_rowaddr"]
    assert table_rows == expected
    written = files_of(root, table)
    assert written[: len(files)] == files
    # Other statements do not have modes.
    spark.sql(f"DELETE FROM {table} WHERE id = 8")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT 9L AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = 0"
    )
    table_rows = rows(root, table)
    assert 8 not in table_rows
    assert table_rows[9]["v"] == 0


def test_overlays_of_statements_at_the_same_time(spark: Any, root: Path, table: str) -> None:
    spark.conf.set(MODE, "overlay")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: spark.sql(f"UPDATE {table} SET v = v + 1 WHERE id < 30"), range(2)))
    assert [row["v"] for row in rows(root, table).values()] == [
        number + 2 * (number < 30) for number in range(40) if number != 3
    ]
    spark.sql(f"UPDATE {table} SET v = 0 WHERE id > 1000")
    spark.sql(f"UPDATE {table} SET v = 1")
    assert {row["v"] for row in rows(root, table).values()} == {1}


def test_refused_by_name(spark: Any, root: Path, table: str) -> None:
    spark.conf.set(MODE, "overlays")
    with pytest.raises(PySparkException, match=f"{MODE} must be one of auto, rows"):
        spark.sql(f"UPDATE {table} SET v = 1")
    before = rows(root, table)
    spark.conf.set(MODE, "overlay")
    with pytest.raises(PySparkException, match=r"column 'p': .*null"):
        spark.sql(f"UPDATE {table} SET p = NULL WHERE id = 5")
    blobs = f"{NAME}.blobs"
    spark.sql(
        f"CREATE TABLE {blobs} (id BIGINT, b BINARY) TBLPROPERTIES ('b.lance.encoding' = 'blob')"
    )
    spark.sql(f"INSERT INTO {blobs} VALUES (1, X'01')")
    for mode in ("overlay", "columns"):
        spark.conf.set(MODE, mode)
        with pytest.raises(PySparkException, match="blobs of column 'b' cannot be set"):
            spark.sql(f"UPDATE {blobs} SET b = X'02'")
    assert rows(root, table) == before
