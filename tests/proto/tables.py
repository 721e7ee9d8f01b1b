"""Tables that pylance writes for these tests: many column types, and many operations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
from lance.file import LanceFileWriter

ROWS = 6000

INDEXES = {"id": "BTREE", "word": "BITMAP", "tags": "LABEL_LIST"}
VECTOR_INDEXES = {"IVF_FLAT": {}, "IVF_PQ": {"num_sub_vectors": 2}, "IVF_HNSW_SQ": {}, "IVF_RQ": {}}


def hints(**values: str) -> dict[str, str]:
    return {f"lance-encoding:{key.replace('_', '-')}": value for key, value in values.items()}


def columns(version: str) -> Iterator[tuple[str, pa.Array, dict[str, str] | None]]:
    """Yield columns that together make pylance use its encodings of a file version."""
    rng = np.random.default_rng(7)
    n = ROWS
    holes = rng.random(n) < 0.2
    words = np.array([f"word-{i}-{'x' * (i % 7)}" for i in range(40)])
    paths = [f"https://example.com/some/path/{x}" for x in rng.integers(0, 10**6, n)]
    vectors = np.tile(rng.random(128), n).astype("f4")
    yield "bool", pa.array(rng.random(n) < 0.5), None
    yield "small", pa.array(rng.integers(0, 100, n), pa.int32()), None
    yield "wide", pa.array(rng.integers(-(2**62), 2**62, n)), None
    yield "holes", pa.array(rng.integers(0, 100, n), pa.int64(), mask=holes), None
    yield "double", pa.array(rng.random(n)), None
    yield "half", pa.array(rng.random(n).astype("f2")), None
    rising = np.cumsum(rng.random(n)).astype("f4")
    yield "split", pa.array(rising), hints(bss="on", compression="lz4")
    yield "runs", pa.array(np.repeat(np.arange(60), n // 60), pa.int64()), None
    yield "null", pa.nulls(n), None
    yield "nulls", pa.nulls(n, pa.int32()), None
    yield "time", pa.array(rng.integers(0, 2**40, n), pa.timestamp("us", "UTC")), None
    yield "decimal", pa.array([None, *range(n - 1)], pa.decimal128(20, 0)), None
    yield "text", pa.array([f"https://example.com/{x}/{i}" for i, x in enumerate(paths)]), None
    yield "fsst", pa.array(paths), hints(compression="fsst")
    yield "zstd", pa.array(paths), hints(compression="zstd", compression_level="3")
    yield "category", pa.array(words[rng.integers(0, 40, n)], mask=holes), None
    yield "dictionary", pa.array(words[rng.integers(0, 40, n)]).dictionary_encode(), None
    yield "binary", pa.array([rng.bytes(300) for _ in range(n // 20)] * 20), None
    yield "fixed", pa.array([rng.bytes(16) for _ in range(n)], pa.binary(16)), None
    yield "vector", pa.FixedSizeListArray.from_arrays(pa.array(rng.random(n * 8)), 8), None
    loose = pa.array(rng.random(n * 2), mask=rng.random(n * 2) < 0.1)
    yield "loose", pa.FixedSizeListArray.from_arrays(loose, 2), None
    yield "long_vector", pa.FixedSizeListArray.from_arrays(pa.array(vectors), 128), None
    yield "list", pa.array([None if i % 11 == 0 else list(range(i % 5)) for i in range(n)]), None
    yield "struct", pa.array([{"x": i, "y": str(i)} for i in range(n)]), None
    nested = [[{"k": i, "v": [str(i)] * (i % 3)}] * (i % 2) for i in range(n)]
    yield "nested", pa.array(nested), None
    pairs = pa.array([{"x": i, "y": float(i)} for i in range(n)])
    yield "packed", pairs, {"packed": "true"}
    blobs = pa.array([b"b" * (i % 50) for i in range(n)], pa.large_binary())
    yield "blob", blobs, hints(blob="true")
    if version == "2.0":
        return
    yield "struct_null", pa.array([None if i % 3 == 0 else {"x": i} for i in range(n)]), None
    lists = pa.array([[f"{i:090}"] * (i % 3) for i in range(n)])
    yield "zipped", lists, hints(structural_encoding="fullzip")
    if version == "2.1":
        return
    yield "same", pa.array([7] * n), None
    yield "same_text", pa.array(["hello"] * n), None
    yield "map", pa.array([[("a", i)] for i in range(n)], pa.map_(pa.string(), pa.int32())), None
    texts = pa.array([{"x": i, "y": str(i)} for i in range(n)])
    yield "packed_text", texts, {"packed": "true"}
    halves = pa.array([{"x": i} for i in range(2 * n)])
    yield "struct_vector", pa.FixedSizeListArray.from_arrays(halves, 2), None
    yield "null_lists", pa.nulls(n, pa.list_(pa.int32())), None
    yield "no_items", pa.array([None, []] * (n // 2), pa.list_(pa.int8())), None
    if version == "2.2":
        return
    sparse = hints(structural_encoding="sparse")
    yield "sparse", pa.array([None if i % 9 else i for i in range(n)]), sparse
    lists = pa.array([[i] * 3 if i % 50 == 0 else None for i in range(n)])
    yield "sparse_lists", lists, sparse
    yield "sparse_vectors", pa.FixedSizeListArray.from_arrays(halves, 2), sparse
    yield "sparse_category", pa.array(words[rng.integers(0, 40, n)], mask=holes), sparse


def write_types(folder: Path, version: str) -> Path:
    """Write the columns; return the folder of the data files."""
    names, arrays, metadata = zip(*columns(version), strict=True)
    fields = [pa.field(*part) for part in zip(names, [a.type for a in arrays], strict=True)]
    schema = pa.schema([f.with_metadata(m) for f, m in zip(fields, metadata, strict=True)])
    table = pa.table(list(arrays), schema=schema)
    lance.write_dataset(table, str(folder / "types"), data_storage_version=version)
    return folder / "types" / "data"


def rows(start: int, stop: int) -> pa.Table:
    ids = np.arange(start, stop)
    key = {b"lance-schema:unenforced-primary-key": b"true"}
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata=key),
            pa.field("word", pa.string(), metadata={"note": "a"}),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("vector", pa.list_(pa.float32(), 8)),
            pa.field("point", pa.struct({"x": pa.float64(), "y": pa.float64()})),
        ],
        metadata={"made": "for tests"},
    )
    flat = pa.array(np.random.default_rng(start).random(len(ids) * 8, dtype="f4"))
    values = [
        pa.array(ids),
        pa.array([f"word {i % 17} of text" for i in ids]),
        pa.array([[str(i % 3)] for i in ids]),
        pa.FixedSizeListArray.from_arrays(flat, 8),
        pa.array([{"x": float(i), "y": 0.0} for i in ids]),
    ]
    return pa.table(values, schema=schema)


def write_history(folder: Path, version: str, stable_row_ids: bool) -> list[Path]:
    """Apply all operations of pylance to a table; return the roots of all tables and branches."""
    root = folder / "history"
    uri = str(root)

    def write(data: pa.Table, mode: str, **options: object) -> None:
        lance.write_dataset(data, uri, mode=mode, max_rows_per_file=200, **options)

    write(
        rows(0, 10),
        "create",
        data_storage_version=version,
        enable_stable_row_ids=stable_row_ids,
        commit_message="first",
    )
    write(rows(0, 400), "overwrite")
    write(rows(400, 1000), "append")
    dataset = lance.dataset(uri)
    dataset.delete("id % 7 = 3")
    dataset.delete("id >= 800")
    dataset.update({"word": "'updated'"}, where="id < 5")
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows(750, 900))
    dataset.tags.create("before-columns", dataset.version)
    dataset.add_columns({"double_id": "id * 2"})
    dataset.add_columns(pa.field("empty", pa.int32()))
    dataset.alter_columns({"path": "double_id", "name": "twice", "data_type": pa.int32()})
    dataset.drop_columns(["empty", "twice"])
    for column, index_type in INDEXES.items():
        dataset.create_scalar_index(column, index_type, name=f"{column}_{index_type}".lower())
    dataset.create_scalar_index("word", "INVERTED", name="words", with_position=True)
    dataset.create_scalar_index("word", "NGRAM", name="grams")
    dataset.create_scalar_index("id", "ZONEMAP", name="zones")
    dataset.create_scalar_index("id", "BLOOMFILTER", name="blooms")
    for index_type, options in VECTOR_INDEXES.items():
        dataset.create_index(
            "vector", index_type, name=index_type.lower(), num_partitions=2, **options
        )
    write(rows(2000, 2500), "append")
    dataset = lance.dataset(uri)
    dataset.optimize.optimize_indices()
    dataset.optimize.compact_files(target_rows_per_fragment=100000)
    dataset.drop_index("grams")
    dataset.update_config({"lance.test": "yes", "other": "x"})
    dataset.delete_config_keys(["other"])
    dataset.update_metadata({"owner": "tests"})
    dataset.update_schema_metadata({"made": "again"})
    dataset.update_field_metadata({"word": {"note": None, "more": "b"}})
    add_bases(dataset, folder)
    replace_column(dataset)
    dataset = lance.dataset(uri)
    dataset.drop_columns(["own"])
    clone = dataset.shallow_clone(str(folder / "clone"), dataset.version)
    lance.write_dataset(rows(5000, 5010), clone.uri, mode="append")
    branch = dataset.create_branch("feat/x", dataset.version)
    lance.write_dataset(rows(5000, 5010), branch.uri, mode="append")
    if not stable_row_ids:
        write(rows(6000, 6500), "append")
        dataset = lance.dataset(uri)
        dataset.optimize.optimize_indices()
        dataset.optimize.compact_files(target_rows_per_fragment=100000, defer_index_remap=True)
    dataset = lance.dataset(uri)
    dataset.restore()
    lance.dataset(uri, version="before-columns").restore()
    return [root, folder / "clone", root / "tree" / "feat" / "x"]


def write_rarities(folder: Path) -> list[Path]:
    """Use features of pylance that are off by default: overlays, a write-ahead log, row ids in
    columns.
    """
    overlaid = lance.write_dataset(rows(0, 100), str(folder / "overlaid"))
    for offsets in ([1, 5, 7], [[1, 5, 7]]):
        file = column_file(overlaid, "id", pa.array([10, 50, 70]), 0)
        overlay = lance.LanceOperation.DataOverlayFile(file, offsets)
        group = lance.LanceOperation.DataOverlayGroup(0, [overlay])
        operation = lance.LanceOperation.DataOverlay([group])
        overlaid = lance.LanceDataset.commit(overlaid.uri, operation, read_version=overlaid.version)

    logged = lance.write_dataset(rows(0, 100), str(folder / "logged"))
    logged.create_scalar_index("id", "BTREE")
    logged.initialize_mem_wal(
        bucket_column="id", num_buckets=2, maintained_indexes=["id_idx"], max_memtable_rows=10
    )
    with lance.dataset(logged.uri).mem_wal_writer(str(uuid4()), max_memtable_rows=10) as writer:
        for start in (100, 110, 120):
            writer.put(rows(start, start + 10))

    uri = str(folder / "spilled")
    spilled = lance.write_dataset(rows(0, 100), uri, enable_stable_row_ids=True)
    spilled.update_config(
        {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "0"}
    )
    spilled.update({"word": "'x'"}, where="id % 3 = 1")
    spilled.create_scalar_index("word", "MINHASHLSH")
    return [folder / "overlaid", folder / "logged", folder / "spilled"]


def add_bases(dataset: lance.LanceDataset, folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    dataset.add_bases([lance.DatasetBasePath(str(folder / "elsewhere"), name="elsewhere")])


def column_file(
    dataset: lance.LanceDataset, name: str, values: pa.Array, field: int
) -> lance.fragment.DataFile:
    """Write a data file of one column; the table does not refer to it yet."""
    path = Path(dataset.uri) / "data" / f"{uuid4().hex}.lance"
    data = pa.table({name: values})
    with LanceFileWriter(str(path), data.schema, version=dataset.data_storage_version) as file:
        file.write_batch(data)
    version = [int(part) for part in dataset.data_storage_version.split(".")]
    return lance.fragment.DataFile(
        path.name, [field], [0], *version, file_size_bytes=path.stat().st_size
    )


def replace_column(dataset: lance.LanceDataset) -> None:
    """Commit new files for a column. In all fragments the column has a file of its own."""
    dataset.add_columns({"own": "id + 1"})
    groups = []
    for fragment in dataset.get_fragments():
        (field,) = fragment.data_files()[-1].fields
        values = pa.array(np.zeros(fragment.physical_rows, np.int64))
        file = column_file(dataset, "own", values, field)
        groups.append(lance.LanceOperation.DataReplacementGroup(fragment.fragment_id, file))
    replacement = lance.LanceOperation.DataReplacement(groups)
    lance.LanceDataset.commit(dataset.uri, replacement, read_version=dataset.version)
