"""`LanceTable.update`: rows that meet the condition get new values, all other values stay."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lance_spark import LanceTable
from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import (
    InvalidInputError,
    InvalidOptionError,
    SchemaMismatchError,
    UnsupportedError,
    VersionNotFoundError,
)
from lance_spark.mutations.rows import update as row_update
from lance_spark.spark.read.snapshot import snapshot_of
from lance_spark.spark.write.input import InputConverter
from lance_spark.table.open import open_table
from tests.spark.table.tables import checked, delete_meanwhile, left_over

Large = Callable[..., tuple[Path, pa.Table]]


def kinds() -> pa.Table:
    ids = np.arange(100)
    blobs = pa.array([bytes([n]) * n * 50 for n in range(100)], pa.large_binary())
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("n", pa.int32()),
            pa.field("small", pa.uint8()),
            pa.field("half", pa.float16()),
            pa.field("ts", pa.timestamp("ns", "UTC")),
            pa.field("text", pa.large_string()),
            pa.field("vector", pa.list_(pa.float32(), 3)),
            pa.field("inner", pa.struct([("a", pa.int64()), ("b", pa.string())])),
            pa.field("kind", pa.dictionary(pa.int8(), pa.string())),
            pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
        ]
    )
    columns = [
        ids,
        ids.astype(np.int32),
        (ids % 200).astype(np.uint8),
        ids.astype(np.float16),
        pa.array(ids * 1_000_000_007 + 1, pa.timestamp("ns", "UTC")),
        pa.array([f"text {n}" for n in ids], pa.large_string()),
        pa.array([[n, n + 1, n + 2] for n in ids], pa.list_(pa.float32(), 3)),
        pa.array([{"a": int(n), "b": str(n)} for n in ids]),
        pa.array([f"kind {n % 3}" for n in ids])
        .dictionary_encode()
        .cast(pa.dictionary(pa.int8(), pa.string())),
        blobs,
    ]
    return pa.table(columns, schema=schema)


@pytest.fixture
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A table with stable row ids, unless a test says otherwise."""
    stable = getattr(request, "param", True)
    write_dataset(kinds(), str(tmp_path / "t"), max_rows_per_file=25, enable_stable_row_ids=stable)
    return tmp_path / "t"


def contents(path: Path, *columns: str) -> pa.Table:
    checked(path)
    dataset = open_dataset(str(path))
    names = [*dataset.schema.names, *columns]
    return dataset.to_table(names, blob_handling="all_binary").sort_by("id")


@pytest.mark.parametrize("path", [False, True], ids=["addresses", "stable ids"], indirect=True)
def test_all_types_and_lineage(spark: Any, path: Path) -> None:
    from pyspark.sql import functions as F

    lineage = ("_rowid", "_row_created_at_version", "_row_last_updated_at_version")
    before = contents(path, *lineage)
    table = LanceTable.forPath(spark, str(path))
    result = table.update(
        "id % 10 = 4 OR text LIKE '%77'",
        {
            "N": "n * 2",
            "half": "CAST(id AS double) / 2",
            "vector": F.transform("vector", lambda x: x * 2),
            "inner": "named_struct('a', id + 1, 'b', CAST(null AS string))",
            "kind": "'new'",
        },
        commit_message="changed",
    )
    after = contents(path, *lineage)
    hit = {n for n in range(100) if n % 10 == 4 or n == 77}
    assert (result.version, result.num_updated_rows) == (2, len(hit))
    for name in before.schema.names:
        old, new = before[name].to_pylist(), after[name].to_pylist()
        for n in range(100):
            wanted = old[n]
            if n in hit:
                changes = {
                    "n": 2 * n,
                    "half": n / 2,
                    "vector": [2.0 * v for v in (n, n + 1, n + 2)],
                    "inner": {"a": n + 1, "b": None},
                    "kind": "new",
                    "_row_last_updated_at_version": 2,
                }
                if not _is_stable(path):
                    changes["_rowid"] = new[n]
                    changes["_row_created_at_version"] = new[n]
                    changes["_row_last_updated_at_version"] = new[n]
                wanted = changes.get(name, wanted)
            assert new[n] == wanted, (name, n)
    assert after.schema.field("ts").type == pa.timestamp("ns", "UTC")
    assert after["ts"].cast(pa.int64()).equals(before["ts"].cast(pa.int64()))

    # Blobs get values as in writes. A value may read another column, or no column.
    result = table.update(F.col("id") == 5, {"blob": F.lit(b"abc"), "text": "concat(text, kind)"})
    updated = contents(path)
    assert updated["blob"].to_pylist()[5] == b"abc"
    assert updated["text"].to_pylist()[5] == "text 5kind 2"
    assert result.num_updated_rows == 1
    assert table.update("id = -1", {"n": "1"}).num_updated_rows == 0


def _is_stable(path: Path) -> bool:
    return bool(lance.dataset(path).has_stable_row_ids)


def test_failures_change_nothing(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    with pytest.raises(SchemaMismatchError, match="nowhere"):
        table.update("id = 1", {"nowhere": "1"})
    with pytest.raises(InvalidInputError, match="set"):
        table.update("id = 1")
    with pytest.raises(InvalidInputError, match=r"F\.lit\(3\)"):
        table.update("id = 1", {"n": 3})  # type: ignore[dict-item]
    with pytest.raises(InvalidInputError, match="two values"):
        table.update("id = 1", {"n": "3", "N": "4"})
    with pytest.raises(InvalidOptionError, match="mode"):
        table.update("id = 1", {"n": "3"}, mode="other")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="'blob'"):
        table.update("id = 1", {"blob": "CAST(text AS binary)"}, mode="columns")
    # A cast fails for one row, after other rows were written.
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        table.update("id > 10", {"n": "CASE WHEN id = 99 THEN text ELSE '1' END"}, mode="rows")
    # 300 does not fit into uint8, which Spark does not know. An id must not be null.
    with pytest.raises(InvalidInputError, match="small"):
        table.update("id > 10", {"small": "id + 201"}, mode="rows")
    with pytest.raises(InvalidInputError, match="id"):
        table.update("id > 10", {"id": "nullif(id, 50)"})
    assert lance.dataset(path).version == 1
    assert left_over(path) == set()


@pytest.mark.parametrize("with_rule", [False, True])
def test_large_table(
    spark: Any, large: Large, with_rule: bool, request: pytest.FixtureRequest
) -> None:
    path, rows = large()
    if with_rule:
        request.getfixturevalue("pushdown")(True)
    table = LanceTable.forPath(spark, str(path))
    condition = "g = 17" if with_rule else "pmod(g, 100) = 17"
    result = table.update(condition, {"text": "concat(text, '!')", "g": "g + 1000"})
    dataset = checked(path)
    hit = pc.fill_null(pc.equal(rows["g"], 17), False)
    texts = pc.if_else(hit, pc.binary_join_element_wise(rows["text"], "!", ""), rows["text"])
    wanted = rows.set_column(
        1, "g", pc.if_else(hit, pc.add(rows["g"], 1000).cast(pa.int32()), rows["g"])
    )
    wanted = wanted.set_column(2, "text", texts)
    table_rows = dataset.to_table().sort_by("id")
    assert result.num_updated_rows == pc.sum(hit).as_py() > 0
    for name in rows.schema.names:
        assert table_rows[name].combine_chunks().equals(wanted[name].combine_chunks()), name
    # Few rows of each of 50 fragments are written to one new fragment.
    assert len(dataset.get_fragments()) == 51
    result = table.update("id < 3", {"text": "'again'"}, mode="rows")
    assert result.num_updated_rows == 3
    assert checked(path).count_rows("text = 'again'") == 3


def test_concurrent_changes(spark: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = LanceTable.forPath(spark, str(path))
    changes = ["id = 3", "id = 4"]
    delete_meanwhile(monkeypatch, row_update, path, changes)
    assert table.update("id = 7", {"n": "-1"}, mode="rows").num_updated_rows == 1
    # Another client deleted one of the rows before the commit: the update is planned again.
    assert table.update("id in (4, 5)", {"n": "-2"}, mode="rows").num_updated_rows == 1
    rows = checked(path).to_table(["id", "n"], filter="n < 0").sort_by("id").to_pydict()
    assert rows == {"id": [5, 7], "n": [-2, -1]}
    assert checked(path).count_rows() == 98


def test_a_random_condition_loses_no_row(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    for mode in ("auto", "rows"):
        result = table.update("rand() < 0.5", {"n": "n + 1000"}, mode=mode)
        assert contents(path)["id"].to_pylist() == list(range(100))
        assert result.num_updated_rows > 0
    total = sum(n // 1000 for n in contents(path)["n"].to_pylist())
    assert 0 < total <= 200


def test_a_recreated_table_is_not_taken_from_the_cache(tmp_path: Path) -> None:
    """Workers cache open tables, but not across a table that was created again."""
    path = str(tmp_path / "t")
    write_dataset(pa.table({"a": [1]}), path)
    first = snapshot_of(open_table(path))
    assert first.open() is first.open()
    shutil.rmtree(path)
    write_dataset(pa.table({"b": [1]}), path)
    second = snapshot_of(open_table(path))
    assert (second.version, second.open().schema.names) == (first.version, ["b"])
    assert first.open().schema.names == ["a"]
    for name in ("x", "y"):
        write_dataset(pa.table({name: [1]}), str(tmp_path / name))
        snapshot_of(open_table(str(tmp_path / name))).open()
    with pytest.raises(VersionNotFoundError, match="recreated"):
        first.open()
    with pytest.raises(SchemaMismatchError, match="'a'"):
        InputConverter(second.open().schema.to_arrow(), ["a"])
