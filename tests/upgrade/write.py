"""Writes what a release leaves behind, for the tests of this folder: see README.md.

| in an archive | what it is |
| --- | --- |
| `source.lance` | a table of four fragments, one of which has deleted rows; streams read it |
| `target.lance`, `checkpoint` | the table that a stream appends to; it has read all but the last fragment |
| `plan.pickle` | the tasks of a scan of `source.lance` with a filter |
| `feed.lance`, `changes.lance`, `feed_checkpoint` | a table with stable row ids, and its change feed, appended by a stream |
| `totals.lance`, `totals_checkpoint` | the number of rows of `source.lance`, which a stream overwrites |
| `keyed.lance`, `sstable_checkpoint`, `log_checkpoint` | a table with a MemWAL, which two streams upsert into; SSTables and WAL entries are not compacted |
| `indexed.lance`, `vectors.lance` | a column with an index of each type |
| `named.lance` | tags, a branch, and metadata |
| `file_VERSION.lance` | a table of each file version |
| `options.json` | names of options |

`first.tar.xz` has the first three rows.
"""

from __future__ import annotations

import json
import pickle
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

import lance_spark

#: Tasks have the path of their table. A path of the same length can take its place.
LENGTH = 160
STEP = 10
#: Options of an index by its type; the column has the name of the type in lower case.
INDEXES: dict[str, dict[str, Any]] = {
    "BTREE": {},
    "BITMAP": {},
    "ZONEMAP": {},
    "BLOOMFILTER": {"number_of_items": 16},
    "LABEL_LIST": {},
    "NGRAM": {},
    "INVERTED": {"with_position": True},
    "JSON": {"path": "$.n", "target_index_type": "BTREE"},
    "RTREE": {},
}
VECTOR_INDEXES: dict[str, dict[str, Any]] = {
    "IVF_FLAT": {},
    "IVF_SQ": {},
    "IVF_PQ": {"num_sub_vectors": 4, "num_bits": 4},
    "IVF_RQ": {"num_bits": 1},
    "IVF_HNSW_FLAT": {},
    "IVF_HNSW_SQ": {},
}
FILE_VERSIONS = ("0.1", "2.0", "2.1", "2.2", "2.3")
_KEY = {"lance-schema:unenforced-primary-key": "true"}
KEYED = pa.schema([pa.field("id", pa.int64(), False, _KEY), pa.field("text", pa.string())])


def folder_in(parent: Path) -> Path:
    """Return a folder whose path has `LENGTH` characters."""
    return parent / ("x" * (LENGTH - len(str(parent)) - 1))


FOLDER = folder_in(Path(tempfile.gettempdir()))


def rows(part: int) -> pa.Table:
    """Return the rows of a fragment."""
    ids = range(STEP * part, STEP * (part + 1))
    texts = [f"text {number}" for number in ids]
    vectors = pa.array([[number, 0.5] for number in ids], pa.list_(pa.float32(), 2))
    return pa.table({"id": pa.array(ids, pa.int64()), "text": texts, "vector": vectors})


def indexed_rows(part: int) -> pa.Table:
    """Return rows with a column for each type of index."""
    ids = list(range(STEP * part, STEP * (part + 1)))
    points = pa.StructArray.from_arrays(
        [pa.array(map(float, ids)), pa.array(map(float, ids))], ["x", "y"]
    )
    point = pa.field("rtree", points.type, metadata={"ARROW:extension:name": "geoarrow.point"})
    columns: dict[str, Any] = {
        "id": pa.array(ids, pa.int64()),
        "btree": pa.array(ids, pa.int64()),
        "bitmap": pa.array([number % 3 for number in ids], pa.int32()),
        "zonemap": pa.array([number * 0.5 for number in ids]),
        "bloomfilter": pa.array([f"k{number}" for number in ids]),
        "label_list": pa.array([[f"t{number % 4}", f"t{number % 7}"] for number in ids]),
        "ngram": pa.array([f"word{number} end" for number in ids]),
        "inverted": pa.array([f"every w{number % 5} row{number}" for number in ids]),
        "json": pa.array([json.dumps({"n": number}) for number in ids], pa.json_()),
    }
    return pa.table(columns).append_column(point, points)


def vector_rows() -> pa.Table:
    """Return vectors, the same in each column."""
    ids = list(range(64))
    vectors = [[float(number // 2**place % 2 + number % 3) for place in range(8)] for number in ids]
    columns = {
        name.lower(): pa.array(vectors, pa.list_(pa.float32(), 8)) for name in VECTOR_INDEXES
    }
    return pa.table({"id": pa.array(ids, pa.int64()), **columns})


def stream_of(spark: Any, name: str, folder: Path) -> Any:
    """Return the writer of a stream, and set its target and its checkpoint."""
    reader = spark.readStream.format("lance").option("skipChangeCommits", "true")
    checkpoint = str(folder / ("checkpoint" if name == "target" else f"{name}_checkpoint"))
    if name == "feed":
        reader = spark.readStream.format("lance").option("readChangeFeed", "true")
        frame = reader.load(str(folder / "feed.lance"))
        frame = frame.selectExpr("id", "n", "_change_type AS type", "_commit_version AS version")
    else:
        frame = reader.load(str(folder / "source.lance"))
    if name == "totals":
        frame = frame.groupBy().count()
    if name in ("sstable", "log"):
        # Each of them writes keys of its own.
        sign = 1 if name == "sstable" else -1
        frame = frame.selectExpr(f"{sign} * (id + 1) AS id", "text", "id AS seq", "id = 2 AS gone")
    writer = frame.writeStream.format("lance").option("checkpointLocation", checkpoint)
    if name in ("sstable", "log"):
        options = {"upsert": "true", "sequence_column": "seq", "delete_column": "gone"}
        writer = writer.options(**options).option("upsert_mode", name)
    return writer.outputMode("complete" if name == "totals" else "append").trigger(
        availableNow=True
    )


#: The table that each stream writes.
TARGETS = {
    "target": "target.lance",
    "feed": "changes.lance",
    "totals": "totals.lance",
    "sstable": "keyed.lance",
    "log": "keyed.lance",
}


def write_streams() -> None:
    """Write the tables and the checkpoints of streams."""
    from pyspark.sql import SparkSession

    shutil.rmtree(FOLDER, ignore_errors=True)
    spark = SparkSession.builder.master("local[1]").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    source, feed = FOLDER / "source.lance", FOLDER / "feed.lance"
    keyed = lance_spark.write_dataset(KEYED.empty_table(), FOLDER / "keyed.lance")
    keyed.initialize_mem_wal(bucket_column="id", num_buckets=2)
    numbers = pa.table({"id": pa.array(range(STEP), pa.int64()), "n": pa.array([0] * STEP)})
    lance_spark.write_dataset(numbers, feed, enable_stable_row_ids=True)
    for part in range(3):
        lance_spark.write_dataset(rows(part), source, mode="append")
        if not part:
            continue
        for name, target in TARGETS.items():
            query = stream_of(spark, name, FOLDER).start(str(FOLDER / target))
            query.awaitTermination()
        lance_spark.open_dataset(feed).update({"n": part}, f"id % 3 = {part}")
        lance_spark.open_dataset(feed).delete(f"id = {part}")
    lance_spark.open_dataset(source).delete([("id", "==", 3)])
    lance_spark.write_dataset(rows(3), source, mode="append")


def write_tables(name: str) -> None:
    """Write tables, tasks and names, and the archive."""
    from lance_spark.spark.options import names

    path = FOLDER / "indexed.lance"
    for part in range(2):
        lance_spark.write_dataset(indexed_rows(part), path, mode="append")
        if not part:
            for index_type, options in INDEXES.items():
                lance_spark.open_dataset(path).create_scalar_index(
                    index_type.lower(), index_type, **options
                )
    path = FOLDER / "vectors.lance"
    lance_spark.write_dataset(vector_rows(), path)
    for index_type, options in VECTOR_INDEXES.items():
        lance_spark.open_dataset(path).create_index(
            index_type.lower(), index_type, num_partitions=2, **options
        )
    path = FOLDER / "named.lance"
    dataset = lance_spark.write_dataset(rows(0), path)
    dataset.tags.create("first", 1)
    branch = dataset.create_branch("side")
    branch.insert(rows(1))
    dataset.update_config({"some": "setting"})
    for version in FILE_VERSIONS:
        path = FOLDER / f"file_{version}.lance"
        lance_spark.write_dataset(rows(0), path, data_storage_version=version)  # type: ignore[arg-type]
    tasks = lance_spark.open_dataset(FOLDER / "source.lance").plan(
        filter="id > 1 AND text <> 'text 12'", rows_per_task=STEP
    )
    (FOLDER / "plan.pickle").write_bytes(pickle.dumps(tasks))
    known = {
        "read": list(names.READ_NAMES),
        "write": list(names.WRITE_NAMES),
        "synonyms": names.SYNONYMS,
        "columns": names.COLUMN_KEYS,
        "ignored": sorted(names.IGNORED),
    }
    (FOLDER / "options.json").write_text(json.dumps(known, indent=1))
    with tarfile.open(Path(__file__).with_name(f"{name}.tar.xz"), "w:xz", preset=9) as archive:
        for path in sorted(FOLDER.iterdir()):
            archive.add(
                path, path.name, filter=lambda entry: None if ".crc" in entry.name else entry
            )


if __name__ == "__main__":
    if sys.argv[1] == "streams":
        write_streams()
    else:
        write_tables(sys.argv[2])
