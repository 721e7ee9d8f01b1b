"""Updates beside changes of other clients, and conflicts of inserted keys."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CommitConflictError
from lance_spark.proto import transaction_pb2
from lance_spark.table.operations.append import Append
from lance_spark.table.operations.base import BloomFilter, Conflict, InsertedKeys
from lance_spark.table.operations.registry import operation_of
from lance_spark.table.operations.update import Update, UpdateMode
from tests.support.tables.pylance_written import manifests
from tests.table.operations.word_tables import (
    ROWS,
    data_files,
    last_update,
    new_table,
    referred,
    rows,
    words,
)

PAIRS = [
    ("update 3", "update 4"),
    ("update 3", "update 23"),
    ("update 3", "update 3"),
    ("update 3", "delete 3"),
    ("delete 3", "update 3"),
    ("delete 3", "update 4"),
    ("update 3", "delete 4"),
    ("update 0-9", "delete 3"),
    ("delete 3", "update 0-9"),
    ("update 0-9", "update 5-15"),
    ("update 3", "columns 3"),
    ("columns 3", "update 4"),
    ("columns 3", "delete 4"),
    ("delete 4", "columns 3"),
    ("columns 3", "columns 5"),
    ("columns 3", "columns 15"),
    ("update 3", "append"),
    ("append", "update 3"),
    ("append", "columns 3"),
]


def by_us(dataset: lance_spark.Dataset, path: Path, change: str, value: str) -> None:
    action, _, span = change.partition(" ")
    if action == "append":
        lance_spark.write_dataset(rows(50, 2), str(path), mode="append")
        return
    first, last = (int(part) for part in (span.split("-") * 2)[:2])
    filters = [("id", ">=", first), ("id", "<=", last)]
    if action == "delete":
        dataset.delete(filters)
    else:
        dataset.update({"word": value}, filters, mode="rows" if action == "update" else "columns")


def by_pylance(dataset: lance.LanceDataset, change: str, value: str) -> None:
    action, _, span = change.partition(" ")
    if action == "append":
        lance.write_dataset(rows(50, 2), dataset.uri, mode="append")
        return
    first, last = (int(part) for part in (span.split("-") * 2)[:2])
    condition = f"id >= {first} and id <= {last}"
    if action == "delete":
        dataset.delete(condition)
    elif action == "update":
        dataset.update({"word": f"'{value}'"}, where=condition)
    else:
        fragment = dataset.get_fragment(first // 10)
        new = pa.table({"id": range(first, last + 1), "word": [value] * (last - first + 1)})
        metadata, fields = fragment.update_columns(new, left_on="id")
        operation = lance.LanceOperation.Update(
            updated_fragments=[metadata],
            fields_modified=fields,
            update_mode="rewrite_columns",
        )
        try:
            lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)
        except OSError as error:
            # The client that commits such an update must do this.
            if "Retryable" not in str(error) or dataset.version > 2:
                raise
            by_pylance(lance.dataset(dataset.uri), change, value)


def after(old_words: dict[int, str], change: str, value: str) -> dict[int, str]:
    action, _, span = change.partition(" ")
    if action == "append":
        return {**old_words, **{50 + i: f"w{50 + i}" for i in range(2)}}
    first, last = (int(part) for part in (span.split("-") * 2)[:2])
    chosen = [i for i in old_words if first <= i <= last]
    if action == "delete":
        return {i: word for i, word in old_words.items() if i not in chosen}
    return {**old_words, **dict.fromkeys(chosen, value)}


@pytest.mark.sample(5)
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("order", ["ours after theirs", "theirs after ours", "both ours"])
@pytest.mark.parametrize(("first_change", "second_change"), PAIRS)
def test_concurrent_updates(
    tmp_path: Path, stable: bool, order: str, first_change: str, second_change: str
) -> None:
    if (first_change, second_change, order) == ("update 3", "columns 3", "theirs after ours"):
        pytest.skip("the row is in another fragment then, and update_columns is about one fragment")
    theirs = new_table(tmp_path, enable_stable_row_ids=stable)
    theirs.create_scalar_index("id", "BTREE")
    ours = lance_spark.open_dataset(str(tmp_path))
    for change, value, client in zip(
        (first_change, second_change),
        ("first", "second"),
        order.split(" after ")[::-1] * 2,
        strict=False,
    ):
        if client == "theirs":
            by_pylance(theirs, change, value)
        else:
            by_us(ours, tmp_path, change, value)
    expected = {row["id"]: row["word"] for row in rows().to_pylist()}
    expected = after(after(expected, first_change, "first"), second_change, "second")
    assert words(tmp_path) == expected
    assert len(manifests(tmp_path)) == 4
    if order != "theirs after ours":
        assert data_files(tmp_path) == referred(tmp_path)
    dataset = lance.dataset(str(tmp_path))
    for number in (3, 4, 15, 50):
        result = dataset.to_table(filter=f"id = {number}")["word"].to_pylist()
        assert result == ([expected[number]] if number in expected else [])
    if stable:
        result = dataset.to_table(columns=["id", "_rowid"]).to_pylist()
        assert all(row["_rowid"] == row["id"] for row in result if row["id"] < ROWS)


def test_retries_end(tmp_path: Path) -> None:
    new_table(tmp_path).delete("id = 2")
    dataset = lance_spark.open_dataset(str(tmp_path))
    lance.dataset(str(tmp_path)).delete("id = 3")
    for mode in ("rows", "columns"):
        with pytest.raises(CommitConflictError) as caught:
            dataset.update({"word": "x"}, [("id", "<", 5)], mode=mode, conflict_retries=0)
        assert caught.value.retryable
    assert data_files(tmp_path) == referred(tmp_path)
    # Columns are rewritten beside existing deletion files.
    assert [list(words(tmp_path))[:3], len(list((tmp_path / "_deletions").iterdir()))] == [
        [0, 1, 4],
        2,
    ]


def keys(*hashes: int) -> InsertedKeys:
    return InsertedKeys((0,), frozenset(hashes))


def bloom(*blocks: list[int], bits: int = 512) -> InsertedKeys:
    data = np.array(blocks, "<u4").tobytes()
    return InsertedKeys((0,), BloomFilter(data, bits, 100, 0.01))


def test_conflicts_of_inserted_keys() -> None:
    def between(own_keys: InsertedKeys | None, other_keys: InsertedKeys | None) -> Conflict:
        return Update(inserted_rows=own_keys).conflict(Update(inserted_rows=other_keys))

    assert between(keys(1, 2), keys(3)) is Conflict.COMPATIBLE
    assert between(keys(1, 2), keys(2)) is Conflict.RETRYABLE
    assert between(keys(1), InsertedKeys((1,), frozenset([2]))) is Conflict.RETRYABLE
    assert between(keys(1), None) is Conflict.RETRYABLE
    assert between(None, keys(1)) is Conflict.COMPATIBLE
    assert between(None, None) is Conflict.COMPATIBLE
    first, second = [1] * 8, [2] * 8
    assert between(bloom(first, second), bloom(first, first)) is Conflict.RETRYABLE
    assert between(bloom(first, second), bloom(second, first)) is Conflict.COMPATIBLE
    assert between(bloom(first), bloom([1] * 7 + [2])) is Conflict.COMPATIBLE
    assert between(bloom(first), bloom(second, second)) is Conflict.RETRYABLE
    assert between(bloom(first), bloom(second, bits=256)) is Conflict.RETRYABLE
    assert between(bloom(first), keys(1)) is Conflict.RETRYABLE
    assert Update(inserted_rows=keys(1)).conflict(Append(())) is Conflict.RETRYABLE
    assert Update().conflict(Append(())) is Conflict.COMPATIBLE


def test_message_round_trip(tmp_path: Path) -> None:
    message = transaction_pb2.Transaction()
    update = message.update
    update.removed_fragment_ids.extend([4, 5])
    update.updated_fragments.add(id=3, physical_rows=5).deletion_file.num_deleted_rows = 2
    update.new_fragments.add(physical_rows=7)
    update.fields_modified.append(2)
    update.fields_for_preserving_frag_bitmap.extend([1, 2])
    update.compacted_sstables.add(generation=3).shard_id.uuid = b"0" * 16
    update.update_mode = 1
    update.inserted_rows.field_ids.append(0)
    update.inserted_rows.bloom.bitmap = bytes(32)
    update.inserted_rows.bloom.num_bits = 256
    update.updated_fragment_offset_bitmaps[3] = bytes.fromhex(
        "3a300000010000000000010010000000010003" + "00"
    )
    operation = operation_of(message, "x")
    assert isinstance(operation, Update)
    assert operation.mode is UpdateMode.REWRITE_COLUMNS
    assert list(operation.updated_offsets[3]) == [1, 3]
    assert operation.touched_fragments == {3, 4, 5}
    again = transaction_pb2.Transaction()
    operation.write_to(again)
    assert again == message
    older = transaction_pb2.Transaction()
    older.update.updated_fragment_offsets[3].values.extend([9, 1])
    assert list(operation_of(older, "x").updated_offsets[3]) == [1, 9]  # type: ignore[attr-defined]


def test_keys_of_real_merges(tmp_path: Path) -> None:
    """Filters of pylance: merges of different keys are distinguished, merges of the same key
    conflict.
    """
    field = pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"})
    schema = pa.schema([field, pa.field("word", pa.string())])
    data = rows().cast(schema)
    lance.write_dataset(data, str(tmp_path / "t"))
    result = []
    for number in (100, 101, 100):
        path = tmp_path / f"t{len(result)}"
        shutil.copytree(tmp_path / "t", path)
        merge = lance.dataset(str(path)).merge_insert("id").when_not_matched_insert_all()
        merge.execute(rows(number, 1).cast(schema))
        result.append(last_update(path))
    assert result[0].inserted_rows is not None
    assert result[0].conflict(result[1]) is Conflict.COMPATIBLE
    assert result[0].conflict(result[2]) is Conflict.RETRYABLE
