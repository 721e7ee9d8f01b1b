"""Changes of a table with indexes of all types: the answers by indexes are those of scans.

Each step is done by one of the clients in turn. After it, both clients answer a filter by each
index, a query of words, and one of the nearest vectors; in `make test` half of these by turns.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.indexes.text.queries import MatchQuery
from tests.support.cells import ALL_CELLS, every_other

ROWS = 1_200
#: Column, type of its index, and filters that the index answers.
INDEXES = {
    "btree": ("BTREE", ["btree = 17", "btree BETWEEN 100 AND 130", "btree IS NULL"]),
    "bitmap": ("BITMAP", ["bitmap = 3", "bitmap IN (1, 2)", "bitmap IS NULL"]),
    "zones": ("ZONEMAP", ["zones > 1150", "zones = 600", "zones IS NULL"]),
    "filters": ("BLOOMFILTER", ["filters = 'k17'", "filters IN ('k1', 'k900')"]),
    "labels": ("LABEL_LIST", ["array_has(labels, 't7')", "array_has_all(labels, ['t1', 't8'])"]),
    "ngrams": ("NGRAM", ["contains(ngrams, 'd 17')", "ngrams LIKE '%ord 9%'"]),
    "text": ("INVERTED", []),
    "vector": ("IVF_FLAT", []),
}
#: Who creates the indexes, and whether the table has stable row ids.
CELLS = [("own", False), ("pylance", True)]
if ALL_CELLS:
    CELLS += [("own", True), ("pylance", False)]
WORDS = ["w3", "w17", "new"]
VECTOR = pa.list_(pa.float32(), 6)
#: Numbers the comparisons.
TURNS = count()


def vector(number: int) -> list[float]:
    """Return a vector of the base-5 digits of a number."""
    return [float(number // 5**place % 5) for place in range(6)]


def rows(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    numbers = ids.tolist()
    return pa.table(
        {
            "id": ids,
            "btree": pa.array(ids, mask=ids % 50 == 1),
            "bitmap": pa.array(ids % 40, mask=ids % 51 == 2),
            "zones": pa.array(ids, mask=ids % 400 == 3),
            "filters": [f"k{n}" for n in numbers],
            "labels": [[f"t{n % 30}", f"t{n % 7}"] for n in numbers],
            "ngrams": pa.array([f"word {n % 200}" for n in numbers], mask=ids % 60 == 4),
            "text": pa.array([f"some w{n % 50} text" for n in numbers], mask=ids % 61 == 5),
            "vector": pa.array([None if n % 62 == 6 else vector(n) for n in numbers], VECTOR),
        }
    )


def check(path: Path, **version: Any) -> None:
    """Compare the answers of both clients with scans; half of the questions by turns."""
    turn = next(TURNS)
    dataset = lance_spark.open_dataset(str(path), **version)
    oracle = lance.dataset(str(path))
    if "branch" in version:
        oracle = oracle.checkout_version((version["branch"], None))
    for column, (_, filters) in INDEXES.items():
        for text in every_other(filters, turn):
            scanned = dataset.to_table(["id"], filter=text, use_scalar_index=False)["id"]
            assert dataset.to_table(["id"], filter=text)["id"].equals(scanned), text
            ids = oracle.to_table(["id"], filter=text)["id"].to_pylist()
            assert sorted(ids) == sorted(scanned.to_pylist()), (column, text)
    texts = dataset.to_table(["id", "text"]).to_pydict()
    for word in every_other(WORDS, turn):
        scanned = sorted(
            number
            for number, text in zip(texts["id"], texts["text"], strict=True)
            if text is not None and word in text.split()
        )
        query = MatchQuery(word, "text")
        ids = dataset.to_table(["id"], full_text_query=query)["id"].to_pylist()
        assert sorted(ids) == scanned, word
        query = {"query": word, "columns": ["text"]}
        ids = oracle.to_table(["id", "_score"], full_text_query=query)["id"].to_pylist()
        assert sorted(ids) == scanned, word
    for number in every_other((17, 302, 2_050), turn):
        check_nearest(dataset, oracle, vector(number))


def check_nearest(dataset: lance_spark.Dataset, oracle: lance.LanceDataset, q: list[float]) -> None:
    """Compare the nearest rows by the index with all rows; any of the farthest ones will do."""
    stored = dataset.to_table(["id", "vector"]).to_pydict()
    distances = {
        number: sum((a - b) ** 2 for a, b in zip(own, q, strict=True))
        for number, own in zip(stored["id"], stored["vector"], strict=True)
        if own is not None
    }
    nearest = sorted(distances.values())[:15]
    wanted = {"column": "vector", "q": q, "k": 15, "nprobes": 100}
    for client in (dataset, oracle):
        table = client.to_table(columns=["id", "_distance"], nearest=wanted)
        assert table["_distance"].to_pylist() == nearest, q
        ids = table["id"].to_pylist()
        assert len(set(ids)) == len(ids)
        assert [distances[number] for number in ids] == nearest, q


def merge(path: str) -> None:
    new = rows(190, 20).set_column(7, "text", pa.array(["new words"] * 20))
    new = pa.concat_tables([new, rows(5_000, 5)])
    merge = lance.dataset(path).merge_insert("id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute(new)


def compact(path: str, **options: Any) -> None:
    lance_spark.open_dataset(path).compact_files(target_rows_per_fragment=400, **options)


def rewrite_columns(path: str) -> None:
    """Give some rows new values in place, by new files of the columns."""
    lance_spark.open_dataset(path).update(
        {"btree": 17, "bitmap": 3, "text": "new text", "ngrams": "word 17", "zones": 1_199},
        "id BETWEEN 300 AND 310",
        mode="columns",
    )
    # In a part of the rows of other fragments.
    lance_spark.open_dataset(path).update(
        {"vector": vector(17)}, "id BETWEEN 700 AND 710", mode="columns"
    )


STEPS: dict[str, Callable[[str], object]] = {
    "append": lambda path: lance_spark.write_dataset(rows(2_000, 100), path, mode="append"),
    "delete": lambda path: lance.dataset(path).delete("id % 9 = 4 OR id < 210 AND id > 190"),
    "update": lambda path: lance_spark.open_dataset(path).update(
        {"btree": 17, "bitmap": 1, "filters": "k17", "text": "new w3", "vector": vector(302)},
        "id % 70 = 6",
    ),
    "merge": merge,
    "compact": compact,
    # Before an extension: pylance masks old values by the fragments of all segments.
    "rewrite columns": rewrite_columns,
    "retrain": lambda path: lance_spark.open_dataset(path).optimize_indices(retrain=True),
    "append more": lambda path: lance.dataset(path).insert(rows(3_000, 100)),
    "extend": lambda path: lance_spark.open_dataset(path).optimize_indices(num_indices_to_merge=0),
    "delete more": lambda path: lance_spark.open_dataset(path).delete("id % 11 = 3"),
    "extend and merge": lambda path: lance.dataset(path).optimize.optimize_indices(),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("builder", "stable"), CELLS)
def test_answers_after_each_change(tmp_path: Path, builder: str, stable: bool) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(
        rows(0, ROWS), str(path), max_rows_per_file=150, enable_stable_row_ids=stable
    )
    create(path, builder)
    check(path)
    built = lance_spark.open_dataset(str(path)).version
    for name, step in STEPS.items():
        step(str(path))
        if name == "compact" and not stable:
            check(path)
            STEPS["delete more"](str(path))
            lance_spark.write_dataset(rows(4_000, 30), str(path), mode="append")
            compact(str(path), defer_index_remap=True)
        try:
            check(path)
        except AssertionError as error:
            error.add_note(f"after the step {name!r}")
            raise
    branched(path, built)
    cloned(path, tmp_path / "clone.lance")
    lance_spark.open_dataset(str(path), version=built).restore()
    check(path)
    compact(str(path))
    check(path)
    lance_spark.write_dataset(rows(10, 90), str(path), mode="overwrite")
    check(path)
    assert lance_spark.open_dataset(str(path)).list_indices() == []


def create(path: Path, builder: str) -> None:
    for column, (index_type, _) in INDEXES.items():
        options = {"stem": False} if index_type == "INVERTED" else {}
        if index_type == "IVF_FLAT":
            client = lance_spark.open_dataset if builder == "own" else lance.dataset
            client(str(path)).create_index(column, index_type, num_partitions=5)  # type: ignore[operator]
            continue
        if builder == "own":
            lance_spark.open_dataset(str(path)).create_scalar_index(column, index_type, **options)
        else:
            lance.dataset(str(path)).create_scalar_index(column, index_type, **options)
    for index in lance_spark.open_dataset(str(path)).describe_indices():
        assert index.num_rows_indexed == ROWS


def branched(path: Path, version: int) -> None:
    """Change a branch of an old version, whose indexes have files in the main branch."""
    lance_spark.open_dataset(str(path)).create_branch("b", version)
    check(path, branch="b")
    branch = lance_spark.open_dataset(str(path), branch="b")
    branch.delete("id % 13 = 2").optimize_indices()
    branch = lance_spark.open_dataset(str(path), branch="b")
    branch.update({"bitmap": 2, "text": "new"}, "id % 90 = 1").optimize_indices()
    check(path, branch="b")


def cloned(path: Path, clone: Path) -> None:
    """Change a shallow clone, whose files are those of the table."""
    lance_spark.open_dataset(str(path)).shallow_clone(str(clone))
    check(clone)
    lance_spark.open_dataset(str(clone)).delete("id % 17 = 2")
    lance_spark.write_dataset(rows(6_000, 20), str(clone), mode="append")
    check(clone)
    lance_spark.open_dataset(str(clone)).optimize_indices(num_indices_to_merge=0)
    check(clone)
    compact(str(clone))
    check(clone)
