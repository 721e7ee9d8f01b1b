"""Tables with an index of each kind, which pylance makes, and comparisons of queries with and
without indexes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

ROWS = 1200
ROWS_PER_FILE = 300
DIM = 8
SCALAR = {
    "a": "BTREE",
    "bm": "BITMAP",
    "labels": "LABEL_LIST",
    "ng": "NGRAM",
    "zone": "ZONEMAP",
    "bloom": "BLOOMFILTER",
    "text": "INVERTED",
}
FILTERS = {
    "a": "a >= 140 and a < 700",
    "bm": "bm = 3",
    "labels": "array_has_any(labels, ['t1'])",
    "ng": "contains(ng, 'word7')",
    "zone": "zone >= 140 and zone < 700",
    "bloom": "bloom = 777 or bloom = 10 or bloom = 5010",
}


def rows(first: int, last: int) -> pa.Table:
    """Return rows numbered `first` to `last`."""
    numbers = range(first, last)
    rng = np.random.default_rng(first)
    vectors = rng.standard_normal((last - first, DIM)).astype(np.float32)
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIM)
    words = [f"word{n % 50} text number{n}" for n in numbers]
    return pa.table(
        {
            "a": pa.array(numbers, pa.int64()),
            "bm": pa.array([n % 5 for n in numbers], pa.int32()),
            "labels": pa.array([[f"t{n % 3}", f"u{n % 7}"] for n in numbers]),
            "ng": pa.array(words),
            "text": pa.array(words),
            "zone": pa.array(numbers, pa.int64()),
            "bloom": pa.array(numbers, pa.int64()),
            "vec": fixed,
            "vec2": fixed,
            "plain": pa.array([n * 10 for n in numbers], pa.int64()),
        }
    )


def build(path: Path, *, stable: bool, version: str = "2.2") -> str:
    """Write a table of four fragments and build all indexes."""
    uri = str(path)
    dataset = lance.write_dataset(
        rows(0, ROWS),
        uri,
        max_rows_per_file=ROWS_PER_FILE,
        enable_stable_row_ids=stable,
        data_storage_version=version,
    )
    for column, index_type in SCALAR.items():
        dataset.create_scalar_index(column, index_type, name=f"{column}_idx")
    dataset.create_index("vec", "IVF_PQ", name="vec_idx", num_partitions=2, num_sub_vectors=4)
    dataset.create_index("vec2", "IVF_FLAT", name="vec2_idx", num_partitions=2)
    return uri


def copy(uri: str, path: Path) -> str:
    """Copy a table."""
    return str(shutil.copytree(uri, path))


def used(uri: str) -> set[str]:
    """Check that queries by index find what a full scan finds; return the columns whose index the
    plan uses.
    """
    dataset = lance.dataset(uri)
    result = {column for column, query in FILTERS.items() if _filter_agrees(dataset, column, query)}
    if "text" in dataset.schema.names:
        _text_agrees(dataset)
    return result | {column for column in ("vec", "vec2") if _nearest_agrees(dataset, column)}


def indexed_rows(uri: str) -> dict[str, int]:
    """Return how many live rows each index covers, as reported by pylance."""
    return {index.name: index.num_rows_indexed for index in lance.dataset(uri).describe_indices()}


def _filter_agrees(dataset: lance.LanceDataset, column: str, query: str) -> bool:
    if column not in dataset.schema.names:
        return False
    scan = {"columns": ["a"] if "a" in dataset.schema.names else [column], "filter": query}
    with_index = dataset.scanner(**scan).to_table().combine_chunks()
    without = dataset.scanner(**scan, use_scalar_index=False).to_table().combine_chunks()
    name = scan["columns"][0]
    assert with_index.sort_by(name) == without.sort_by(name), column
    assert len(without), column
    return "ScalarIndex" in dataset.scanner(**scan).explain_plan()


def _text_agrees(dataset: lance.LanceDataset) -> None:
    hits = dataset.scanner(
        columns=["text"], full_text_query="word7", limit=10**6, disable_scoring_autoprojection=True
    ).to_table()
    scan = dataset.scanner(columns=["text"], filter="text like 'word7 %'", use_scalar_index=False)
    assert sorted(hits["text"].to_pylist()) == sorted(scan.to_table()["text"].to_pylist())


def _nearest_agrees(dataset: lance.LanceDataset, column: str) -> bool:
    if column not in dataset.schema.names:
        return False
    query = np.asarray(dataset.take([5], [column])[column][0].as_py(), np.float32)
    nearest = {"column": column, "q": query, "k": 15, "nprobes": 50, "refine_factor": 100}
    columns = ["plain", "_distance"]
    with_index = dataset.scanner(columns=columns, nearest=nearest)
    without = dataset.scanner(columns=columns, nearest={**nearest, "use_index": False})
    distances = [np.sort(scan.to_table()["_distance"].to_numpy()) for scan in (with_index, without)]
    np.testing.assert_allclose(*distances, rtol=1e-5, atol=1e-5)
    return "ANN" in with_index.explain_plan()
