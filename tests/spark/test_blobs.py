"""Blobs through Spark: written by an option or metadata, read as bytes or descriptions, or left
out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import lance_spark
from lance_spark import LanceTable
from lance_spark.errors import InvalidOptionError
from lance_spark.spark.options.options import ReadOptions, WriteOptions
from tests.support.interop.blobs import (
    blob_paths,
    check_reads,
    extended,
    in_struct,
    marked,
    minimal,
    table,
)

Read, Write = Callable[..., Any], Callable[..., None]
VERSIONS = ("2.0", "2.1", "2.2")
SMALL = {
    "lance-encoding:blob": "true",
    "lance-encoding:blob-inline-size-threshold": "1000",
    "lance-encoding:blob-dedicated-size-threshold": "40000",
}
BLOB = "cast(repeat(cast(id as string), cast(id * 1000 as int)) as binary)"


@pytest.fixture
def frame(spark: Any) -> Any:
    """Return forty values: null, empty, and up to 78 kB long."""
    blob = F.when(F.col("id") % 7 == 3, None).otherwise(F.expr(BLOB))
    return spark.range(0, 40, 1, 2).select("id", blob.alias("b"), F.lit(b"plain").alias("p"))


def expected(rows: int = 40) -> dict[int, bytes | None]:
    return {
        index: None if index % 7 == 3 else str(index).encode() * (index * 1_000)
        for index in range(rows)
    }


def by_id(rows: list[Any]) -> dict[int, bytes | None]:
    return {row["id"]: None if row["b"] is None else bytes(row["b"]) for row in rows}


def content(path: Path) -> dict[int, bytes | None]:
    dataset = lance.dataset(str(path))
    dataset.validate()
    return by_id(dataset.to_table(["id", "b"], blob_handling="all_binary").to_pylist())


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("version", "mark"), [*((version, "option") for version in VERSIONS), ("2.2", "metadata")]
)
def test_round_trip(
    read: Read, write: Write, frame: Any, tmp_path: Path, version: str, mark: str
) -> None:
    path = tmp_path / "t.lance"
    if mark == "option":
        write(frame, data_storage_version=version, **{"B.lance.encoding": "blob"})
    else:
        write(frame.withMetadata("b", SMALL), data_storage_version=version)
    assert blob_paths(lance.dataset(str(path)).schema) == ["b"]
    assert content(path) == expected()
    check_reads(path)
    binary = read(blob_handling="all_binary")
    assert dict(binary.dtypes) == {"id": "bigint", "b": "binary", "p": "binary"}
    assert by_id(binary.collect()) == expected()
    described = read()
    sizes = {row["id"]: row["size"] for row in described.select("id", "b.size").collect()}
    lengths = {
        row_id: None if value is None else len(value) for row_id, value in expected().items()
    }
    # Files of version 2.0 distinguish nulls from values without bytes only by the position.
    assert sizes == (
        {row_id: size or 0 for row_id, size in lengths.items()} if version == "2.0" else lengths
    )
    none = read(blob_handling="none")
    assert none.columns == ["id", "p"]
    assert none.count() == 40
    # An append follows the table, for any type of the data.
    write(frame.where("id < 5"))
    assert read(blob_handling="all_binary").where("id < 5").count() == 10
    assert content(path) == expected()


@pytest.mark.parametrize(("version", "target"), [("2.0", "2.2"), ("2.1", "2.0"), ("2.2", "2.1")])
def test_a_copy_has_blobs_again(
    read: Read, write: Write, frame: Any, tmp_path: Path, version: str, target: str
) -> None:
    write(frame.withMetadata("b", SMALL), data_storage_version=version)
    copy = tmp_path / "copy.lance"
    write(read(blob_handling="all_binary"), "append", str(copy), data_storage_version=target)
    assert blob_paths(lance.dataset(str(copy)).schema) == ["b"]
    assert content(copy) == expected()


@pytest.mark.parametrize("version", VERSIONS)
def test_blob_descriptions_are_not_blobs(
    read: Read, write: Write, frame: Any, tmp_path: Path, version: str
) -> None:
    write(frame, data_storage_version=version, **{"b.lance.encoding": "blob"})
    described = read()
    with pytest.raises(Exception, match=r"'b' is a blob.*blob_handling=all_binary"):
        write(described)
    with pytest.raises(Exception, match=r"(?s)b.*blob_handling=all_binary"):
        write(described, "overwrite", str(tmp_path / "u.lance"), **{"b.lance.encoding": "blob"})
    # Without the mark, it is a table of numbers.
    write(described, "overwrite", str(tmp_path / "u.lance"))
    assert blob_paths(lance.dataset(str(tmp_path / "u.lance")).schema) == []
    assert content(tmp_path / "t.lance") == expected()


MADE: dict[str, Callable[[Any], Any]] = {
    "2.0": marked,
    "2.1": marked,
    "2.2": marked,
    "extended": extended,
    "minimal": minimal,
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("made", list(MADE))
def test_appends_to_tables_of_pylance(
    read: Read, write: Write, frame: Any, tmp_path: Path, made: str
) -> None:
    path = tmp_path / "t.lance"
    old = {-1: b"old", -2: None, -3: b"", -4: b"o" * 7_000}
    data = table(MADE[made](list(old.values())), ids=False)
    data = data.append_column("id", pa.array(list(old), pa.int64()))
    version = made if made in VERSIONS else "2.2"
    lance.write_dataset(data, str(path), data_storage_version=version)
    write(frame.select("b", "id"))
    assert content(path) == old | expected()
    assert by_id(read(blob_handling="all_binary").collect()) == old | expected()
    assert read(blob_handling="none").columns == ["id"]
    check_reads(path)


def test_blobs_in_structs(read: Read, write: Write, tmp_path: Path) -> None:
    values = [b"a", None, b"ccc", b"", b"d" * 7_000] * 4
    lance.write_dataset(table(in_struct(values, True)), str(tmp_path / "t.lance"))
    result = read(blob_handling="all_binary")
    rows = {row["i"]: row["s"] for row in result.collect()}
    assert [rows[index] and rows[index]["b"] for index in range(20)] == [
        None if index % 7 == 3 else value for index, value in enumerate(values)
    ]
    assert read(blob_handling="none").select("s.*").columns == ["x", "plain"]
    sizes = read(columns="s.b,i").select("i", "s.b.size").orderBy("i").collect()
    assert [row["size"] for row in sizes][:5] == [1, None, 3, None, 7_000]
    write(result, "overwrite", str(tmp_path / "copy.lance"))
    assert blob_paths(lance.dataset(str(tmp_path / "copy.lance")).schema) == ["s.b"]
    check_reads(tmp_path / "copy.lance")


def test_lists_of_blobs(read: Read, write: Write, spark: Any, tmp_path: Path) -> None:
    """The lists are created by an option, appended to in three ways, and changed. pylance reads all
    of them.
    """
    path, copy = tmp_path / "t.lance", tmp_path / "copy.lance"
    lists = [[b"a", None, b"c" * 9_000], None, [], [b""], [b"d"] * 3]
    rows = {row_id: lists[row_id % 5] for row_id in range(20)}
    frame = spark.createDataFrame([*rows.items()], "i long, l array<binary>")

    def content(path: Path) -> dict[int, Any]:
        dataset = lance.dataset(str(path))
        dataset.validate()
        result = dataset.to_table(blob_handling="all_binary").to_pylist()
        return {row["i"]: row["l"] for row in result}

    write(frame, **{"l.lance.encoding": "blob", "data_storage_version": "2.2"})
    assert [extension_name for _, extension_name in _blob_kinds(path)] == ["lance.blob.v2"]
    assert content(path) == rows
    as_bytes = read(blob_handling="all_binary")
    assert dict(as_bytes.dtypes)["l"] == "array<binary>"
    # Append plain arrays, and rows that were read. A copy has blobs again.
    write(frame.selectExpr("i + 100 as i", "l"))
    write(as_bytes.where("i < 100").selectExpr("i + 200 as i", "l"))
    expected = {row_id + first: value for row_id, value in rows.items() for first in (0, 100, 200)}
    assert content(path) == expected
    write(read(blob_handling="all_binary"), "overwrite", str(copy))
    assert _blob_kinds(copy) == _blob_kinds(path)
    assert content(copy) == expected
    # A stream writes to a table of pylance.
    theirs = tmp_path / "theirs.lance"
    field = pa.field("item", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    old = pa.table({"i": [-1], "l": pa.array([[b"old"]], pa.list_(field))})
    lance.write_dataset(old, str(theirs), data_storage_version="2.2")
    stream = spark.readStream.format("lance").option("blob_handling", "all_binary").load(str(copy))
    query = (
        stream.writeStream.format("lance")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(theirs))
    )
    query.awaitTermination()
    assert content(theirs) == {-1: [b"old"]} | expected
    expected = content(theirs)
    changed = LanceTable.forPath(spark, str(theirs))
    changed.update("i < 0", {"i": "i + 1001"})
    expected[1000] = expected.pop(-1)
    assert content(theirs) == expected
    source = spark.createDataFrame([(3, [b"new", None]), (500, None)], "i long, l array<binary>")
    merge = changed.alias("t").merge(source.alias("s"), "t.i = s.i")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    expected |= {3: [b"new", None], 500: None}
    assert content(theirs) == expected
    changed.delete("i between 4 and 9")
    changed.optimize()
    assert content(theirs) == {
        row_id: item for row_id, item in expected.items() if not 4 <= row_id <= 9
    }


def _blob_kinds(path: Path) -> list[tuple[str, str]]:
    schema = lance_spark.open_dataset(str(path))._table.schema
    return [
        (node.logical_type, node.metadata["ARROW:extension:name"].decode())
        for node in schema.walk()
        if node.is_blob
    ]


def test_references(read: Read, write: Write, spark: Any, tmp_path: Path) -> None:
    path, file = tmp_path / "t.lance", tmp_path / "f.bin"
    file.write_bytes(b"0123456789" * 20)
    lance.write_dataset(table(extended([b"a"])), str(path))
    schema = "b struct<data: binary, uri: string, position: bigint, size: bigint>, i bigint"
    rows = [((None, file.as_uri(), None, None), 1), ((None, file.as_uri(), 3, 4), 2), (None, 3)]
    frame = spark.createDataFrame([*rows, ((b"here", None, None, None), 4)], schema)
    with pytest.raises(Exception, match=r"is a URI.*external_blob_mode"):
        write(frame)
    write(frame, allow_external_blob_outside_bases=True)
    write(frame.selectExpr("b", "i + 10 as i"), external_blob_mode="ingest")
    result = read(blob_handling="all_binary").orderBy("i").collect()
    named = [file.read_bytes(), b"3456", None, b"here"]
    assert [None if row["b"] is None else bytes(row["b"]) for row in result] == [
        b"a",
        *named,
        *named,
    ]
    check_reads(path)


def test_tasks_that_fail_leave_no_files_of_blobs(
    read: Read, write: Write, frame: Any, tmp_path: Path
) -> None:
    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().partitionId() == 1:  # type: ignore[union-attr]
            raise RuntimeError("upstream")

    path = tmp_path / "t.lance"
    write(frame.withMetadata("b", SMALL).coalesce(1))
    before = set(path.rglob("data/**/*"))
    assert any(file.suffix == ".blob" for file in before)
    with pytest.raises(Exception, match="upstream"):
        write(frame.mapInArrow(failing, frame.schema))
    assert set(path.rglob("data/**/*")) == before
    assert by_id(read(blob_handling="all_binary").collect()) == expected()


def test_options() -> None:
    result = ReadOptions.parse({"path": "t", "Blob_Handling": " ALL_BINARY "})
    assert result.blob_handling == "all_binary"
    assert ReadOptions.parse({"path": "t"}).blob_handling is None
    with pytest.raises(InvalidOptionError, match="blob_handling must be one of all_binary"):
        ReadOptions.parse({"path": "t", "blob_handling": "bytes"})
    with pytest.raises(InvalidOptionError, match="did you mean blob_handling"):
        ReadOptions.parse({"path": "t", "blob_handlin": "none"})
    chosen = {
        "path": "t",
        "external_blob_mode": "Ingest",
        "blob_pack_file_size_threshold": "4096",
        "c.lance.encoding": "blob",
    }
    written = WriteOptions.parse(chosen)
    assert written.external_blob_mode == "ingest"
    assert written.blob_pack_file_size_threshold == 4096
    assert written.column_metadata == {"c": {"lance-encoding:blob": "true"}}
    assert not written.allow_external_blob_outside_bases
    for name, value in (
        ("external_blob_mode", "copy"),
        ("blob_pack_file_size_threshold", "0"),
        ("allow_external_blob_outside_bases", "perhaps"),
        ("c.lance.encoding", "zstd"),
    ):
        with pytest.raises(InvalidOptionError, match=name):
            WriteOptions.parse({"path": "t", name: value})
