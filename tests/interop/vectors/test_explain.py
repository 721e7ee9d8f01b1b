"""`Dataset.explain` of vector searches: partitions and rows as pylance's `analyze_plan` counts them."""

from __future__ import annotations

import re
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError

ROWS, DIMENSION = 2000, 8


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("explain") / "t.lance")
    values = np.random.default_rng(3).standard_normal((ROWS, DIMENSION)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), DIMENSION)
    table = pa.table({"id": range(ROWS), "v": column})
    lance.write_dataset(table, path)
    lance.dataset(path).create_index("v", "IVF_PQ", num_partitions=6, num_sub_vectors=4)
    return path


def test_partitions_and_rows(path: str, tmp_path: Path) -> None:
    dataset = lance_spark.open_dataset(path)
    q = np.linspace(0, 1, DIMENSION, dtype=np.float32)
    for probes in (1, 2, None, 6):
        nearest = {"column": "v", "q": q, "k": 5, "nprobes": probes}
        text = dataset.explain(nearest=nearest)
        assert "column: v, metric l2, k 5" in text
        match = re.search(
            r"index: v_idx \(VECTOR\): 2000 rows, IVF_PQ l2, (\d+) of 6 partitions, ([\d,]+) rows measured",
            text,
        )
        assert match is not None
        assert probes is None or int(match[1]) == probes
        rows = int(match[2].replace(",", ""))
        plan = lance.dataset(path).scanner(nearest=nearest).analyze_plan()
        assert f"partitions_searched={match[1]}," in plan
        assert f"index_comparisons={rows}," in plan or rows == ROWS
    assert rows == ROWS
    both = dataset.explain(nearest={"column": "v", "q": [q, q], "k": 5}, filter="id < 9")
    assert "k 5, 2 queries" in both
    assert "filter of the rows found: id < 9" in both
    refined = {"column": "v", "q": q, "k": 5, "refine_factor": 3}
    text = dataset.explain(nearest=refined, filter="id < 9", prefilter=True)
    assert "15 of them again by their vectors" in text
    assert "  prefilter: id < 9" in text


def test_rows_without_an_index(path: str, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy.lance")
    table = lance.dataset(path).to_table()
    lance.write_dataset(table, copy)
    nearest = {"column": "v", "q": [0.0] * DIMENSION, "metric": "dot"}
    text = lance_spark.open_dataset(copy).explain(nearest=nearest)
    assert "metric dot, k 10" in text
    assert "VECTOR" not in text
    assert "no index: 2,000 rows measured" in text
    lance.dataset(copy).create_index("v", "IVF_FLAT", num_partitions=2, metric="dot")
    lance.write_dataset(table[:7], copy, mode="append")
    dataset = lance_spark.open_dataset(copy)
    text = dataset.explain(nearest=nearest)
    assert "index: v_idx (VECTOR): 2000 rows, IVF_FLAT dot, " in text
    assert "10 of them again by their vectors" in text
    assert "7 rows without an index" in text
    assert "without an index" not in dataset.explain(nearest=nearest, fast_search=True)
    with pytest.raises(InvalidInputError, match="q must have 8 items"):
        dataset.explain(nearest={"column": "v", "q": [1.0]})
