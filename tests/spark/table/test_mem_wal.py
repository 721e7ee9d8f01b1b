"""A MemWAL of `LanceTable` and of SQL: set up, listed, compacted, cleaned, guarded, removed."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, InvalidOptionError, UnsupportedFeatureError
from lance_spark.spark.table import LanceTable
from tests.spark.sql.catalogs import TestCatalog

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), False, KEY), pa.field("s", pa.string())])


def rows(ids: list[int], text: str) -> pa.Table:
    return pa.table({"id": ids, "s": [text] * len(ids)}, SCHEMA)


def upsert(uri: str, ids: list[int], text: str, *, flush: bool = True) -> None:
    dataset = lance_spark.open_dataset(uri)
    for shard, part in dataset.split_by_shard(rows(ids, text)).items():
        writer = dataset.mem_wal_writer(shard)
        writer.put(part)
        writer.close(flush=flush)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(list(range(10)), "base"), uri)
    return uri


def test_methods(spark: Any, uri: str) -> None:
    table = LanceTable.forPath(spark, uri)
    with pytest.raises(InvalidInputError, match="no MemWAL"):
        table.shards()
    with pytest.raises(InvalidOptionError, match="together"):
        table.initialize_mem_wal(bucket_column="id")
    result = table.initialize_mem_wal(
        bucket_column="id", num_buckets=3, writer_options={"max_memtable_rows": 1000}
    )
    assert result.version == 2
    assert table.shards().collect() == []
    upsert(uri, [1, 2, 3, 20, 21], "a")
    upsert(uri, [1, 30], "b", flush=False)
    shards = table.shards().collect()
    assert sum(row.sstable_rows for row in shards) == 5
    assert sum(row.log_rows for row in shards) == 2
    assert {row.status for row in shards} == {"active"}
    assert {row["values"]["bucket"] for row in shards} <= {"0", "1", "2"}

    done = table.compact_mem_wal()
    assert (done.num_inserted_rows, done.num_updated_rows) == (2, 3)
    done = table.compact_mem_wal(flush=True)
    assert (done.num_inserted_rows, done.num_updated_rows) == (1, 1)
    expected = (
        dict.fromkeys(range(10), "base") | dict.fromkeys([2, 3, 20, 21], "a") | {1: "b", 30: "b"}
    )
    assert {row.id: row.s for row in table.toDF().collect()} == expected
    cleaned = table.clean_mem_wal(datetime.timedelta()).collect()[0]
    assert cleaned.sstables_removed > 0

    upsert(uri, [40], "c", flush=False)
    with pytest.raises(UnsupportedFeatureError, match="rows that are not"):
        table.disable_mem_wal(compact=False)
    upsert(uri, [41], "c")
    table.disable_mem_wal()
    assert not (Path(uri) / "_mem_wal").exists()
    with pytest.raises(InvalidInputError, match="no MemWAL"):
        table.disable_mem_wal()
    assert {row.id for row in table.toDF().collect()} == {*expected, 40, 41}
    lance.dataset(uri).validate()


def test_changes_of_rows_wait_for_the_compaction(spark: Any, uri: str) -> None:
    table = LanceTable.forPath(spark, uri)
    table.initialize_mem_wal(unsharded=True)
    table.update("id = 1", {"s": "'x'"})
    upsert(uri, [1], "a")
    source = spark.createDataFrame([(1, "new")], "id long, s string")
    merge = table.merge(source, "target.id = source.id").whenMatchedUpdateAll()
    changes = {
        "update": lambda: table.update("id = 1", {"s": "'y'"}),
        "delete": lambda: table.delete("id = 1"),
        "merge": merge.execute,
        "upsert": lambda: table.upsert(source),
        "overwrite": lambda: source.write.format("lance").mode("overwrite").save(uri),
        "restore": lambda: table.restoreToVersion(1),
    }
    for name, change in changes.items():
        with pytest.raises(Exception, match="MemWAL"):
            pytest.fail(f"{name} was not refused: {change()}")
    table.compact_mem_wal()
    for name in ("update", "merge", "upsert", "delete"):
        changes[name]()
    assert table.toDF().count() == 9
    for name in ("overwrite", "restore"):
        with pytest.raises(Exception, match="shards"):
            changes[name]()


def test_procedures(spark: Any, tmp_path: Path) -> None:
    catalog = TestCatalog.of(spark, "waled", tmp_path)
    catalog.sql("CREATE TABLE CAT.t (id BIGINT NOT NULL, s STRING)")
    catalog.sql("CALL CAT.system.set_unenforced_primary_key('t', array('id'))")
    catalog.sql(
        "CALL CAT.system.initialize_mem_wal('t', bucket_column => 'id', num_buckets => 2, "
        "writer_options => map('durable_write', 'true', 'max_memtable_rows', '50'))"
    )
    uri = catalog.pylance("t").uri
    settings = lance.dataset(uri).mem_wal_index_details()
    assert settings["writer_config_defaults"]["max_memtable_rows"] == "50"
    upsert(uri, [1, 2, 3], "a")
    shards = catalog.sql("CALL CAT.system.mem_wal_shards('t')")
    assert sum(row.sstable_rows for row in shards) == 3
    assert "MemWAL" in str(catalog_error(catalog, "UPDATE CAT.t SET s = 'x' WHERE id = 1"))
    (done,) = catalog.sql("CALL CAT.system.compact_mem_wal('t')")
    assert tuple(done)[1:] == (3, 0, 0)
    catalog.sql("UPDATE CAT.t SET s = 'x' WHERE id = 1")
    assert catalog.sql("SELECT s FROM CAT.t ORDER BY id") == [("x",), ("a",), ("a",)]
    catalog.sql(
        "CALL CAT.system.clean_mem_wal('t', older_than => INTERVAL '0 00:00:00' DAY TO SECOND)"
    )
    catalog.sql("CALL CAT.system.disable_mem_wal('t')")
    assert not (Path(uri) / "_mem_wal").exists()
    assert lance.dataset(uri).mem_wal_index_details() is None


def catalog_error(catalog: TestCatalog, statement: str) -> Exception:
    with pytest.raises(Exception) as error:  # noqa: PT011 - of Java, by its text
        catalog.sql(statement)
    return error.value
