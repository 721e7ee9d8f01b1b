"""Reordered rows: each is written once, with its id and versions."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import CommitConflictError, InvalidInputError, UnsupportedFeatureError
from lance_spark.mutations.compaction.reorder import (
    Reorder,
    Reordered,
    commit_reordered,
    plan_reorder,
)
from lance_spark.mutations.rewrite.writers import undo
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.open import OpenTable, open_table
from tests.support.tables.stored_files import data_files

#: Random orders of many rows.
pytestmark = pytest.mark.slow

LINEAGE = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def write(path: Path, *, stable: bool, index: str = "") -> OpenTable:
    """Six fragments of 20 rows in no order, some deleted, some updated."""
    order = np.random.default_rng(9).permutation(120)
    data = pa.table(
        {
            "id": order,
            "text": [f"row {n}" for n in order],
            "list": [[int(n)] * (n % 3) if n % 5 else None for n in order],
        }
    )
    table = lance.write_dataset(
        data.slice(0, 80), path, max_rows_per_file=20, enable_stable_row_ids=stable
    )
    if index:
        table.create_scalar_index("id", index)
    table = lance.write_dataset(data.slice(80), path, mode="append", max_rows_per_file=20)
    table.delete("id % 11 = 0")
    table.update({"text": "'new'"}, "id = 50")
    return open_table(str(path))


def addresses(table: OpenTable, ids: list[int]) -> np.ndarray:
    """Row addresses of fragments, in the order of the column id."""
    rows = open_dataset(table.store.uri).to_table(columns=["id"], with_row_address=True)
    rows = rows.sort_by("id")
    row_addresses = rows["_rowaddr"].to_numpy()
    return row_addresses[np.isin(row_addresses >> np.uint64(32), np.array(ids, np.uint64))]


def reordered(table: OpenTable, ids: list[int], parts: int = 3) -> list[Reordered]:
    results = []
    for part in np.array_split(addresses(table, ids), parts):
        writer = Reorder(table)
        for batch in np.array_split(part, 4):
            writer.write(batch)
        results.append(writer.finish())
    return results


@pytest.mark.sample(5)
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("index", ["", "BTREE", "BITMAP"])
def test_rows_come_in_order(tmp_path: Path, stable: bool, index: str) -> None:
    path = tmp_path / "t"
    table = write(path, stable=stable, index=index)
    names = [*table.schema.names, *(LINEAGE if stable else [])]
    before = open_dataset(str(path)).to_table(columns=names).sort_by("id")
    groups = plan_reorder(table)
    assert len(groups) == (2 if index else 1)
    parts = [(group, reordered(table, [fragment.id for fragment in group])) for group in groups]
    manifest, metrics = commit_reordered(table, parts, CommitOptions({"why": "order"}))
    assert metrics.fragments_removed == len(table.manifest.fragments)
    assert metrics.fragments_added == 3 * len(groups) == len(manifest.fragments)
    after = open_dataset(str(path)).to_table(columns=names)
    assert after.sort_by("id") == before
    ids = after["id"].to_numpy()
    assert (np.diff(ids) < 0).sum() == len(groups) - 1
    theirs = lance.dataset(path)
    theirs.validate()
    assert theirs.to_table(columns=table.schema.names) == after.select(table.schema.names)
    for number in (1, 50, 119):
        assert theirs.to_table(filter=f"id = {number}")["id"].to_pylist() == [number]
    if index:
        (covered,) = [index["fragment_ids"] for index in open_dataset(str(path)).list_indices()]
        now = {fragment.fragment_id for fragment in theirs.get_fragments()}
        # A BTREE holds row addresses, which have changed.
        assert len(now & covered) == (3 if stable and index == "BITMAP" else 0)


def test_each_live_row_must_be_written_once(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = write(path, stable=True)
    ((group),) = plan_reorder(table)
    ids = [fragment.id for fragment in group]
    before = data_files(path)
    results = reordered(table, ids)
    with pytest.raises(InvalidInputError, match="live rows; reorder"):
        commit_reordered(table, [(group, results[:2])])
    undo(table.paths, results)
    results = reordered(table, ids)
    with pytest.raises(InvalidInputError, match="two tasks"):
        commit_reordered(table, [(group, [*results, results[0]])])
    with pytest.raises(InvalidInputError, match=f"fragment {ids[-1]} were written"):
        commit_reordered(table, [(group[:-1], reordered(table, ids))])
    writer = Reorder(table)
    few = addresses(table, ids)[:3]
    writer.write(few)
    with pytest.raises(InvalidInputError, match="twice"):
        writer.write(few[2:])
    writer.abort()
    deleted = open_dataset(str(path), 1).to_table(
        columns=["id"], filters=[("id", "==", 11)], with_row_address=True
    )["_rowaddr"]
    writer = Reorder(table)
    with pytest.raises(InvalidInputError, match="deleted"):
        writer.write(deleted.to_numpy())
    writer.abort()
    assert data_files(path) == before
    assert lance.dataset(path).version == table.version


def test_a_row_that_another_client_deletes_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = write(path, stable=True)
    before = data_files(path)
    (group,) = plan_reorder(table)
    parts = [(group, reordered(table, [fragment.id for fragment in group]))]
    lance.dataset(path).delete("id = 5")
    with pytest.raises(CommitConflictError) as error:
        commit_reordered(table, parts)
    assert error.value.retryable
    assert data_files(path) == before


def test_fragments_that_stay(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = write(path, stable=False)
    last = max(fragment.id for fragment in table.manifest.fragments)
    (group,) = plan_reorder(table, {0, last})
    commit_reordered(table, [(group, reordered(table, [fragment.id for fragment in group]))])
    assert {0, last} <= {fragment.fragment_id for fragment in lance.dataset(path).get_fragments()}


def test_a_reuse_index_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path, stable=False, index="BTREE")
    lance.dataset(path).optimize.compact_files(defer_index_remap=True)
    with pytest.raises(UnsupportedFeatureError, match="reuse index"):
        plan_reorder(open_table(str(path)))
