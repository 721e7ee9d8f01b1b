"""Rows that are read by address and moved to new fragments keep their values and lineage."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import InvalidInputError
from lance_spark.mutations.commits import commit_rows
from lance_spark.mutations.rewrite.readers import AddressReader
from lance_spark.mutations.rewrite.writers import RowRewriter, write_held
from lance_spark.mutations.rows.delete import run_delete, union_rows
from lance_spark.mutations.rows.update import UpdateResult, update_operation
from lance_spark.runner import LocalRunner, new_tag
from lance_spark.table.open import open_table
from lance_spark.table.rows.deletions import encode_bitmap

BLOB = {"lance-encoding:blob": "true"}


def rows_of(start: int, stop: int) -> pa.Table:
    ids = range(start, stop)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "ts": pa.array([n * 1_000_003 + 1 for n in ids], pa.timestamp("ns")),
            "kind": pa.array([f"kind {start}-{n % 3}" for n in ids]).dictionary_encode(),
            "half": pa.array(np.arange(start, stop, dtype=np.float16)),
            "small": pa.array([n % 250 for n in ids], pa.uint8()),
            "money": pa.array([n * 10**40 for n in ids], pa.decimal256(60, 2)),
            "names": pa.array([None if n % 5 == 0 else [f"n{n}", None] for n in ids]),
            "inner": pa.array([{"a": n, "b": None if n % 2 else str(n)} for n in ids]),
            "blob": pa.array(
                [None if n % 4 == 0 else bytes([n % 256]) * (n * 700) for n in ids],
                pa.large_binary(),
            ),
        }
    )


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two appends of 60 rows in fragments of 20, some rows of which are deleted."""
    path = tmp_path / "t"
    for start in (0, 60):
        rows = rows_of(start, start + 60)
        field = rows.schema.field("blob").with_metadata(BLOB)
        schema = rows.schema.set(rows.schema.get_field_index("blob"), field)
        write_dataset(
            rows.cast(schema),
            str(path),
            mode="append" if start else "create",
            max_rows_per_file=20,
            **({} if start else {"enable_stable_row_ids": request.param}),
        )
    lance.dataset(path).delete("id % 10 = 3")
    return path


def contents(path: Path, version: int | None = None) -> pa.Table:
    names = ["_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]
    dataset = open_dataset(str(path), version)
    return dataset.to_table([*dataset.schema.names, *names], blob_handling="all_binary")


def test_rows_come_in_the_order_of_their_addresses(path: Path) -> None:
    everything = contents(path)
    addresses = everything["_rowaddr"].to_numpy()
    order = np.random.default_rng(3).permutation(len(addresses))
    table = open_table(str(path))
    for chosen in (order, order[:7], np.repeat(order[:5], 2), np.arange(5, 15)):
        with AddressReader(table, table.schema.fields) as rows:
            batch = rows.read(addresses[chosen])
        expected = everything.take(pa.array(chosen))
        values = pa.Table.from_batches([batch.values]).combine_chunks()
        for name in values.schema.names:
            column = values[name].to_pylist()
            if name == "blob":
                # Blobs as a writer takes them: bytes, or descriptions.
                column = [None if value is None else value["data"] for value in column]
            assert column == expected[name].to_pylist(), name
        assert batch.row_ids.tolist() == expected["_rowid"].to_pylist()
        assert batch.created.tolist() == expected["_row_created_at_version"].to_pylist()
        assert batch.updated.tolist() == expected["_row_last_updated_at_version"].to_pylist()


@pytest.mark.parametrize(
    ("address", "message"), [(3, "deleted"), (20, "20 rows"), (9 << 32, "no fragment 9")]
)
def test_addresses_without_a_live_row(path: Path, address: int, message: str) -> None:
    table = open_table(str(path))
    with (
        AddressReader(table, table.schema.fields) as rows,
        pytest.raises(InvalidInputError, match=message),
    ):
        rows.read(np.array([1, address], np.uint64))


@pytest.mark.parametrize("max_held", [0, 500_000, 1 << 20])
def test_moved_rows_keep_columns_that_are_not_given(path: Path, max_held: int) -> None:
    """Also rows that tasks hold until the commit writes them."""
    before = contents(path)
    table = open_table(str(path))
    stable = table.manifest.flags.stable_row_ids
    chosen = np.flatnonzero(before["id"].to_numpy() % 3 == 0)
    addresses = before["_rowaddr"].to_numpy()[chosen]
    moved = []
    for part in np.array_split(np.arange(len(chosen)), 2):
        mover = RowRewriter(table, table.schema, ["small"], tag=new_tag(), max_held=max_held)
        for few in np.array_split(part, 3):
            values = pa.record_batch({"small": pa.array([7] * len(few), pa.uint8())})
            mover.move(addresses[few], values)
        moved.append(pickle.loads(pickle.dumps(mover.finish())))
    counts = [sum(fragment.physical_rows for fragment in part.fragments) for part in moved]
    moved = write_held(table, moved, new_tag())
    # The first task holds all its rows, the second has more than 500,000 bytes.
    held = {0: 0, 500_000: moved[0].num_rows, 1 << 20: len(chosen)}[max_held]
    assert sum(counts) == len(chosen) - held
    assert len([fragment for part in moved for fragment in part.fragments]) == (
        1 if max_held == 1 << 20 else 2
    )
    assert sum(part.num_rows for part in moved) == len(chosen)
    rows = union_rows((part.rows for part in moved), disjoint=True)
    deletions = run_delete(table, LocalRunner(True), rows=rows)
    fragments = tuple(fragment for part in moved for fragment in part.fragments)
    ids = [field.id for field in table.schema.fields if field.name == "small"]
    result = UpdateResult(fragments, tuple(deletions))
    commit_rows(table, update_operation(table, [result], ids, "rows"))

    lance.dataset(path).validate()
    after = contents(path).sort_by("id")
    small = [7 if n % 3 == 0 else n % 250 for n in before["id"].to_pylist()]
    expected: dict[str, Any] = {name: before[name].to_pylist() for name in before.schema.names}
    expected["small"] = small
    for name in open_dataset(str(path)).schema.names:
        assert after[name].to_pylist() == expected[name], name
    if stable:
        assert after["_rowid"].to_pylist() == expected["_rowid"]
        created = "_row_created_at_version"
        assert after[created].to_pylist() == expected[created]
        version = table.version + 1
        updated = [
            version if n % 3 == 0 else old
            for n, old in zip(expected["id"], expected["_row_last_updated_at_version"], strict=True)
        ]
        assert after["_row_last_updated_at_version"].to_pylist() == updated
    of_pylance = lance.dataset(path).to_table(["id", "small", "money"]).sort_by("id")
    assert of_pylance["money"].to_pylist() == expected["money"]


@pytest.mark.parametrize("inserts_last", [True, False])
def test_inserted_rows_follow_rows_that_move(path: Path, inserts_last: bool) -> None:
    """With stable row ids, the ids of a fragment are those of its first rows."""
    table = open_table(str(path))
    mover = RowRewriter(table, table.schema, table.schema.names, tag=b"")
    values = open_dataset(str(path)).to_table(blob_handling="all_binary").to_batches()[0]
    if not inserts_last:
        mover.insert(values)
    mover.move(np.array([1], np.uint64), values.slice(1, 1))
    if inserts_last:
        mover.insert(values)
    mover.mark_deleted(np.array([2, (1 << 32) + 1], np.uint64))
    moved = mover.finish()
    assert (moved.num_rows, moved.num_inserted) == (1, values.num_rows)
    rows = (moved.fragments, moved.inserted)
    counts = [[fragment.physical_rows for fragment in part] for part in rows]
    shares = inserts_last or not table.manifest.flags.stable_row_ids
    own = values.num_rows
    assert counts == ([[1 + own], []] if shares else [[1], [own]])
    offsets = union_rows([moved.rows], disjoint=True)
    assert {number: list(rows) for number, rows in offsets.items()} == {0: [1, 2], 1: [1]}


def test_a_row_moves_once(path: Path) -> None:
    table = open_table(str(path))
    before = sorted((path / "data").rglob("*"))
    mover = RowRewriter(table, table.schema, ["small"], tag=b"")
    values = pa.record_batch({"small": pa.array([1, 2], pa.uint8())})
    mover.move(np.array([1, 2], np.uint64), values)
    for addresses in ([5, 5], [7, 2]):
        with pytest.raises(InvalidInputError, match="twice"):
            mover.move(np.array(addresses, np.uint64), values)
    mover.abort()
    assert sorted((path / "data").rglob("*")) == before
    from pyroaring import BitMap

    parts = [{3: encode_bitmap(BitMap([1, 2]))}, {3: encode_bitmap(BitMap([2, 5]))}]
    assert union_rows(parts, disjoint=False) == {3: BitMap([1, 2, 5])}
    with pytest.raises(InvalidInputError, match=str((3 << 32) + 2)):
        union_rows(parts, disjoint=True)
