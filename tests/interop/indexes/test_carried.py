"""Indexes of types that are neither created nor used: changes keep them, and pylance uses them."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.indices import IndexConfig

import lance_spark
from lance_spark.errors import InvalidInputError


@pytest.mark.parametrize("index_type", ["fm", "minhashlsh"])
def test_an_index_of_another_type(tmp_path: Path, index_type: str) -> None:
    path = str(tmp_path / "t.lance")
    texts = [f"text number {number} about things and stuff {number % 7}" for number in range(300)]
    lance.write_dataset(pa.table({"id": range(300), "s": texts}), path, max_rows_per_file=100)
    lance.dataset(path).create_scalar_index("s", IndexConfig(index_type, {}), "other")
    (before,) = lance.dataset(path).list_indices()
    dataset = lance_spark.open_dataset(path)
    assert dataset.list_indices()[0]["type"] == before["type"]
    lance_spark.write_dataset(pa.table({"id": [300], "s": ["number 12"]}), path, mode="append")
    dataset = lance_spark.open_dataset(path).delete("id = 121").optimize_indices()
    (after,) = lance.dataset(path).list_indices()
    assert (after["uuid"], after["fragment_ids"]) == (before["uuid"], before["fragment_ids"])
    text = "contains(s, 'number 12')"
    assert dataset.count_rows(text) == lance.dataset(path).count_rows(filter=text) == 11
    assert "indexes" not in dataset.explain(filter=text)
    plan = lance.dataset(path).scanner(filter=text).explain_plan()
    assert ("ScalarIndexQuery" in plan) is (index_type == "fm")
    for spelling in (index_type, index_type.upper(), lance_spark.IndexConfig(index_type, {})):
        with pytest.raises(InvalidInputError, match=f"(?i)'{index_type}' cannot be created"):
            dataset.create_scalar_index("s", spelling)
    with pytest.raises(InvalidInputError, match="cannot be extended"):
        dataset.optimize_indices(["other"])
    with pytest.raises(InvalidInputError, match="cannot be checked"):
        dataset.check_index("other")
