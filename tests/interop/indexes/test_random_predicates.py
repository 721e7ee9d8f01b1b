"""Random conditions on indexed columns: the rows of a scan without indexes, by both clients.

The columns of a table take turns. `make test-long` takes a table for each type of index, file
version, and number of segments.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import UnsupportedTypeError
from tests.interop.indexes import tables
from tests.interop.indexes.random_predicates import Predicate, Predicates
from tests.support.cells import ALL_CELLS, number_of

PREDICATES = number_of(24, 500)
ROWS = 3_000
#: Columns of each type of index; all columns of single values if there are none.
COLUMNS = {
    "BTREE": [],
    "BITMAP": [],
    "ZONEMAP": [],
    "BLOOMFILTER": [],
    "NGRAM": ["s", "few", "phrase"],
    "LABEL_LIST": ["labels", "numbers"],
}
_OPTIONS = {
    "BTREE": {"zone_size": 128},
    "ZONEMAP": {"rows_per_zone": 200},
    "BLOOMFILTER": {"number_of_items": 200},
}
_VALUES = ["id", *tables.FILTERS.keys(), "raw", "fix", "ts", "tz"]
CELLS = [
    (who, index_type, version, segments, stable)
    for (who, index_type), (version, segments, stable) in itertools.product(
        itertools.product(("own", "pylance"), COLUMNS),
        itertools.product(("2.0", "2.1", "2.2"), (1, 2), (False, True)),
    )
]
if not ALL_CELLS:
    # Each type by each client, with other versions and segments.
    CELLS = [CELLS[12 * number + number * 5 % 12] for number in range(len(CELLS) // 12)]


def rows(ids: np.ndarray, version: str) -> pa.Table:
    """Return rows with columns of single values, of text and of lists."""
    numbers = ids.tolist()
    table = tables.rows(ids, version)
    phrases = pa.array([f"Some text No {n % 300}, end." for n in numbers], mask=ids % 9 == 2)
    labels = [None if n % 11 == 0 else [f"t{n % 90}", f"t{n % 7}", None][: n % 4] for n in numbers]
    items = [None if n % 13 == 0 else [n % 50, n % 6][: n % 3] for n in numbers]
    return (
        table.append_column("phrase", phrases)
        .append_column("labels", pa.array(labels, pa.list_(pa.string())))
        .append_column("numbers", pa.array(items, pa.list_(pa.int32())))
    )


@pytest.mark.sample(5)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: "-".join(map(str, cell)))
def test_answers_are_those_of_a_scan(cell: tuple[str, str, str, int, bool], tmp_path: Path) -> None:
    who, index_type, version, segments, stable = cell
    path, rng = str(tmp_path / "t.lance"), random.Random(str(cell))
    data = rows(np.arange(ROWS), version)
    lance.write_dataset(
        data,
        path,
        max_rows_per_file=800,
        data_storage_version=version,
        enable_stable_row_ids=stable,
    )
    lance_spark.open_dataset(path).delete("id % 7 = 6 OR (id > 900 AND id < 960)")
    columns = [
        column
        for column in COLUMNS[index_type] or list(dict.fromkeys(_VALUES))
        if _is_built(path, who, index_type, column, segments)
    ]
    assert columns
    _change(path, version)
    predicates = Predicates(rng, data, columns)
    names = itertools.islice(itertools.cycle(columns), PREDICATES)
    used = [_compare(path, predicates.on(name)) for name in names]
    assert any(used)


def _is_built(path: str, who: str, index_type: str, column: str, segments: int) -> bool:
    """Create an index; return whether the client takes the column."""
    dataset, options = lance_spark.open_dataset(path), _OPTIONS.get(index_type, {})
    try:
        if who == "own":
            dataset.create_scalar_index(column, index_type, num_segments=segments, **options)
            return True
        oracle = lance.dataset(path)
        if segments == 1:
            oracle.create_scalar_index(column, index_type, **options)
            return True
        parts = [
            oracle.create_index_uncommitted(
                column, index_type, name=f"{column}_idx", fragment_ids=ids, **options
            )
            for ids in ([0, 1], [2, 3])
        ]
        oracle.commit_existing_index_segments(f"{column}_idx", column, parts)
    except UnsupportedTypeError:
        return False
    except (ValueError, OSError, NotImplementedError):
        if who == "own":
            raise
        return False
    return True


def _change(path: str, version: str) -> None:
    """Delete, append and update rows after the indexes were made."""
    lance_spark.open_dataset(path).delete("id % 31 = 5")
    dataset = lance.dataset(path)
    dataset.insert(rows(np.arange(100, 300), version))
    dataset.update({"x": "x + 7", "s": "'k99999'"}, where="id % 100 = 1")


def _compare(path: str, predicate: Predicate) -> bool:
    """Compare the answers to a condition; return whether an index was used."""
    dataset, text = lance_spark.open_dataset(path), predicate.own
    scanned = dataset.to_table(["id"], filter=text, use_scalar_index=False)["id"]
    assert dataset.to_table(["id"], filter=text)["id"].equals(scanned), text
    assert dataset.count_rows(text) == len(scanned), text
    if predicate.pylance is not None:
        ids: Any = lance.dataset(path).to_table(["id"], filter=predicate.pylance)["id"]
        assert sorted(ids.to_pylist()) == sorted(scanned.to_pylist()), predicate.pylance
    return "  index: " in dataset.explain(filter=text)
