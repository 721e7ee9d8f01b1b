"""Indexes that are committed after columns were rewritten, compared with pylance's full scans."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction, read_transaction
from lance_spark.table.open import open_table, read_latest
from lance_spark.table.operations.base import Operation
from tests.table.operations.test_data_replacement import replace_by_us, write

LABELS = pa.field("labels", pa.list_(pa.string()))
PACKED = pa.field(
    "packed", pa.struct([("a", pa.int64()), ("b", pa.int64())]), metadata={"packed": "true"}
)


def table(path: Path) -> pa.Schema:
    """Write two fragments of three rows; the fields of the files are 0, 2 and 3."""
    schema = pa.schema([pa.field("id", pa.int64()), LABELS, PACKED])
    rows = [
        {"id": number, "labels": [f"t{number}"], "packed": {"a": number, "b": 0}}
        for number in range(6)
    ]
    data = pa.Table.from_pylist(rows, schema)
    lance.write_dataset(data, str(path), max_rows_per_file=3, data_storage_version="2.2")
    return schema


def index_made_elsewhere(path: Path, column: str, index_type: str) -> Operation:
    """Let pylance build an index of the newest version without committing it here."""
    elsewhere = path.with_name("elsewhere")
    shutil.copytree(path, elsewhere)
    lance.dataset(str(elsewhere)).create_scalar_index(column, index_type)
    store = ObjectStore.from_uri(elsewhere)
    made = read_transaction(store, read_latest(store))
    assert made is not None
    shutil.copytree(elsewhere / "_indices", path / "_indices")
    return made.operation


@pytest.mark.parametrize(
    ("column", "index_type", "field", "new", "query"),
    [
        ("labels", "LABEL_LIST", 2, [["z"]] * 3, "array_has_any(labels, ['z'])"),
        ("packed.a", "BTREE", 3, [{"a": 99, "b": 0}] * 3, "packed.a = 99"),
    ],
)
def test_an_index_committed_after_its_column_was_replaced(
    tmp_path: Path, column: str, index_type: str, field: int, new: list[object], query: str
) -> None:
    path = tmp_path / "t"
    schema = table(path)
    operation = index_made_elsewhere(path, column, index_type)
    field_of_column = schema.field(column.split(".", maxsplit=1)[0])
    file = write(
        path, pa.table([pa.array(new, field_of_column.type)], pa.schema([field_of_column])), [field]
    )
    base = open_table(str(path)).manifest
    replace_by_us(path, [(0, file)], base)
    # A replacement of another column is committed in between, too.
    other_file = write(path, pa.table({"id": pa.array([7, 8, 9], pa.int64())}), [0])
    replace_by_us(path, [(1, other_file)], open_table(str(path)).manifest)
    commit(ObjectStore.from_uri(path), Transaction.new(1, operation), base)
    dataset = lance.dataset(str(path))
    (index,) = dataset.list_indices()
    assert set(index["fragment_ids"]) == {1}
    assert dataset.to_table(filter=query).num_rows == 3
    assert dataset.scanner(filter=query, use_scalar_index=False).to_table().num_rows == 3
