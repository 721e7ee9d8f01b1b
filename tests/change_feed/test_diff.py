"""The change feed: its rows turn a version into the next version; with stable row ids, they equal
pylance's.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyroaring import BitMap

import lance_spark
from lance_spark.change_feed.diff import NO_ROW_CHANGES, changes_between
from lance_spark.change_feed.tasks import FeedColumns, plan_changes
from lance_spark.errors import CorruptTableError, SchemaMismatchError, VersionNotFoundError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.manifest.codec import decode, encode
from lance_spark.table.open import open_table
from tests.support.cells import number_of
from tests.support.histories.model import KEY, Change, KnownBugError, State
from tests.support.histories.plan import Plan
from tests.support.histories.run import Branch, History

FEED = ("_change_type", "_commit_version", "_commit_timestamp")
Update = transaction_pb2.Transaction.Update
OLD_ROWS = ("delete", "update_preimage")
#: Most versions of a feed over several ones.
SPAN = 8
HISTORIES = number_of(3, 100)


def feed(uri: str, first: int, last: int, columns: list[str] | None = None) -> pa.Table:
    """The changes of versions, read in small tasks."""
    table = open_table(uri, version=last)
    changes = list(changes_between(table, first, last))
    feed_columns = FeedColumns.of(table.manifest, columns)
    tasks = plan_changes(uri, changes, feed_columns, target_rows=7)
    batches = [batch for task in tasks for batch in task.batches(batch_size=5)]
    rows = pa.Table.from_batches(batches, feed_columns.to_arrow())
    assert rows.num_rows == sum(change.num_rows for change in changes)
    return rows


def multiset(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def applied(rows: Counter[str], changes: pa.Table) -> Counter[str]:
    change_types = changes["_change_type"].to_pylist()
    values = changes.drop_columns(list(FEED)).to_pylist()
    rows = Counter(rows)
    for change_type, row in zip(change_types, values, strict=True):
        rows[repr(row)] += -1 if change_type in OLD_ROWS else 1
    assert all(number >= 0 for number in rows.values())
    return +rows


class HistoryWithFeed(History):
    """A history that checks the change feed after each step."""

    def accept(self, branch: Branch, outcomes: list[State], change: Change) -> None:
        before = branch.newest if branch.states else 0
        super().accept(branch, outcomes, change)
        for version in range(max(before, 0) + 1, branch.newest + 1):
            self.check_feed(branch.uri, version)
        self.check_span(branch)

    def check_span(self, branch: Branch) -> None:
        """Check the changes of several versions, with the columns that all of them have."""
        first = last = branch.newest
        while first - 1 in branch.states and last - first < SPAN:
            first -= 1
        if first == last:
            return
        states = [branch.states[version] for version in range(first, last + 1)]
        columns = tuple(
            column
            for column in states[-1].columns
            if all(
                (older := state.column(column.number)) is not None and older.type == column.type
                for state in states
            )
        )
        names = [KEY.name, *(column.name for column in columns)]
        before, after = (multiset(states[place].table(columns=columns)) for place in (0, -1))
        assert applied(before, feed(branch.uri, first + 1, last, names)) == after
        self.counts["columns of spans"] += len(columns)

    def check_feed(self, uri: str, version: int) -> None:
        new = lance_spark.open_dataset(uri, version)
        old = lance_spark.open_dataset(uri, version - 1) if version > 1 else None
        same = old is None or new.schema.equals(old.schema)
        columns = None if same else [KEY.name]
        changes = feed(uri, version, version, columns)
        rows = Counter() if old is None else multiset(old.to_table(columns))
        assert applied(rows, changes) == multiset(new.to_table(columns))
        transaction = new.read_transaction(version)
        assert transaction is not None
        operation_name = transaction.operation.name
        self.counts[f"changes of {operation_name}"] += changes.num_rows
        if operation_name in NO_ROW_CHANGES:
            assert changes.num_rows == 0
        if self.common.stable and old is not None:
            self.check_pylance(uri, version, operation_name)

    def check_pylance(self, uri: str, version: int, operation_name: str) -> None:
        changes = feed(uri, version, version, [KEY.name, "_rowid"])
        theirs = lance.dataset(uri, version=version).delta(compared_against=version - 1)
        ids: dict[str, set[int]] = {}
        for name in ("insert", "update_preimage", "update_postimage", "delete"):
            mine = changes.filter(pc.equal(changes["_change_type"], name))
            ids[name] = set(mine["_rowid"].to_pylist())
            assert len(ids[name]) == mine.num_rows
        assert ids["update_preimage"] == ids["update_postimage"]
        if operation_name in ("restore", "merge", "overwrite", "data_replacement", "data_overlay"):
            return
        self.counts["compared with pylance"] += 1
        inserted = theirs.get_inserted_rows().read_all()
        assert set(inserted["_rowid"].to_pylist()) == ids["insert"], operation_name
        updated = theirs.get_updated_rows().read_all()
        assert set(updated["_rowid"].to_pylist()) == ids["update_postimage"], operation_name
        deleted = theirs.get_deleted_row_ids().read_all()
        assert set(deleted["_rowid"].to_pylist()) == ids["delete"], operation_name


def run(seed: int, folder: Path) -> Counter[str]:
    history = HistoryWithFeed(Plan.of_seed(seed), folder / f"feed-{seed}")
    os.environ["LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES"] = "1"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            history.run()
    except KnownBugError:
        pass
    except BaseException as error:
        for line in [f"history {seed}", *history.log]:
            error.add_note(line)
        raise
    finally:
        del os.environ["LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES"]
        for path in folder.glob(f"feed-{seed}*"):
            shutil.rmtree(path, ignore_errors=True)
    return history.counts


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, HISTORIES, 4))
def test_changes_applied_to_a_version_give_the_next_one(tmp_path: Path, first: int) -> None:
    for seed in range(first, min(first + 4, HISTORIES)):
        run(seed, tmp_path)


def table_of(path: str, *, stable: bool = True) -> lance_spark.Dataset:
    """Two fragments of five rows: id, n, text."""
    rows = pa.table(
        {
            "id": range(10),
            "n": [10 * number for number in range(10)],
            "text": [str(i) for i in range(10)],
        }
    )
    return lance_spark.write_dataset(
        rows, path, max_rows_per_file=5, enable_stable_row_ids=stable, data_storage_version="2.1"
    )


def feed_rows(uri: str, first: int, last: int, columns: list[str] | None = None) -> list[tuple]:
    rows = feed(uri, first, last, columns).drop_columns(["_commit_timestamp"]).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def test_updates_have_both_images_with_stable_row_ids(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table_of(uri)
    lance.dataset(uri).update({"n": "n + 1"}, where="id in (1, 7)")
    lance.dataset(uri).delete("id = 7")
    lance.dataset(uri).optimize.compact_files()
    lance_spark.open_dataset(uri, 2).restore()
    newest = lance_spark.open_dataset(uri).version
    assert feed_rows(uri, 2, newest, ["id", "n"]) == [
        (1, 10, "update_preimage", 2),
        (1, 11, "update_postimage", 2),
        (7, 70, "update_preimage", 2),
        (7, 71, "delete", 3),
        (7, 71, "insert", newest),
        (7, 71, "update_postimage", 2),
    ]


def test_updates_are_deletes_and_inserts_without_stable_row_ids(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table_of(uri, stable=False)
    lance.dataset(uri).update({"n": "n + 1"}, where="id = 7")
    assert feed_rows(uri, 2, 2, ["id", "n"]) == [(7, 70, "delete", 2), (7, 71, "insert", 2)]


def update_first_row(uri: str, n: int) -> None:
    """Update a column as pylance's fragments do: without a record of the rows."""
    dataset = lance.dataset(uri)
    fragment = dataset.get_fragments()[0]
    new = pa.table({"_rowid": pa.array([0], pa.uint64()), "n": pa.array([n], pa.int64())})
    metadata, fields = fragment.update_columns(new, left_on="_rowid")
    operation = lance.LanceOperation.Update(
        updated_fragments=[metadata], fields_modified=fields, update_mode="rewrite_columns"
    )
    lance.LanceDataset.commit(uri, operation, read_version=dataset.version)


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("stable", [False, True])
def test_updates_in_place_without_a_record_of_their_rows(
    tmp_path: Path, stable: bool, compacted: bool
) -> None:
    uri = str(tmp_path / "t")
    table_of(uri, stable=stable)
    update_first_row(uri, -5)
    updated = [row for row in feed_rows(uri, 2, 2, ["id", "n"]) if row[0] == 0]
    assert updated == [(0, -5, "update_postimage", 2), (0, 0, "update_preimage", 2)]
    if compacted:
        lance.dataset(uri).optimize.compact_files()
    # Taken back, and made again.
    for version in (1, lance_spark.open_dataset(uri).version):
        old = lance_spark.open_dataset(uri)
        lance.dataset(uri, version=version).restore()
        new = lance_spark.open_dataset(uri)
        changes = feed(uri, new.version, new.version)
        assert applied(multiset(old.to_table()), changes) == multiset(new.to_table())


def test_restores_of_updates_over_an_overlay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pylance gives the rows of the overlay the version back that they had before it."""
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    uri = str(tmp_path / "t")
    table_of(uri)
    planned_before = lance.dataset(uri)
    lance_spark.open_dataset(uri).update({"n": -5}, [("id", "==", 0)], mode="overlay")
    planned_before.update({"n": "-6"}, where="id = 3")
    lance_spark.open_dataset(uri).compact_files()
    old = lance_spark.open_dataset(uri)
    lance_spark.open_dataset(uri, 1).restore()
    new = lance_spark.open_dataset(uri)
    changes = feed(uri, new.version, new.version)
    assert applied(multiset(old.to_table()), changes) == multiset(new.to_table())


def forged(path: Path, change: Callable[[table_pb2.Manifest, Update], None]) -> str:
    """Return a table whose second version updates a column in place, with a changed manifest."""
    uri = str(path / "t")
    table_of(uri).update({"n": -1}, [("id", "==", 7)], mode="columns")
    assert feed_rows(uri, 2, 2, ["id", "n"]) == [
        (7, -1, "update_postimage", 2),
        (7, 70, "update_preimage", 2),
    ]
    file = min((path / "t" / "_versions").glob("*.manifest"))
    result = decode(file.read_bytes(), "m")
    message = result.to_proto()
    done = transaction_pb2.Transaction.FromString(result.transaction_section or b"")
    change(message, done.update)
    file.write_bytes(encode(message, result.index_section, done.SerializeToString()))
    return uri


def test_updated_rows_out_of_range(tmp_path: Path) -> None:
    """A few bytes can list as many rows as a fragment can have."""

    def change(_: table_pb2.Manifest, done: Update) -> None:
        every = BitMap(range(2**32))
        every.run_optimize()
        done.updated_fragment_offset_bitmaps[1] = every.serialize()

    uri = forged(tmp_path, change)
    with pytest.raises(
        CorruptTableError, match=r"fragment 1: .*row 4294967295 is out of range.* 5 rows"
    ):
        feed(uri, 2, 2)


def test_a_fragment_with_more_rows_than_before(tmp_path: Path) -> None:
    def change(message: table_pb2.Manifest, done: Update) -> None:
        message.fragments[1].physical_rows = 2**32 - 1
        message.fragments[1].ClearField("inline_last_updated_at_versions")
        done.updated_fragment_offset_bitmaps.clear()

    uri = forged(tmp_path, change)
    message = "fragment 1 has 4294967295 rows, but 5 in the previous version"
    with pytest.raises(CorruptTableError, match=message):
        feed(uri, 2, 2)


def test_columns_of_older_versions(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table_of(uri)
    dataset = lance_spark.open_dataset(uri)
    dataset.alter_columns({"path": "text", "name": "words"})
    lance.dataset(uri).add_columns({"twice": "n * 2"})
    lance.dataset(uri).delete("id = 3")
    rows = feed_rows(uri, 1, 4, ["id", "words", "twice"])
    assert (3, "3", None, "insert", 1) in [row for row in rows if row[0] == 3]
    assert (3, "3", 60, "delete", 4) in rows
    # After an overwrite, field ids belong to other columns.
    swapped = pa.table({"text": ["x"], "id": pa.array([1], pa.int64())})
    lance.write_dataset(swapped, uri, mode="overwrite")
    rows = feed_rows(uri, 4, 5, ["text", "id"])
    assert (None, 3, "delete", 4) in rows
    assert ("x", 1, "insert", 5) in rows
    assert len(rows) == 1 + 9 + 1


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table_of(uri)
    lance_spark.open_dataset(uri).alter_columns({"path": "n", "data_type": pa.int32()})
    with pytest.raises(SchemaMismatchError, match="'n' is int64 in version 1, but int32"):
        feed(uri, 1, 2)
    assert len(feed_rows(uri, 1, 2, ["id", "text"])) == 10


def test_a_new_column_with_the_id_of_a_dropped_one_is_null_before(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table_of(uri)
    lance.dataset(uri).add_columns({"dropped": "n + 1"})
    lance.dataset(uri).delete("id = 3")
    lance.dataset(uri).drop_columns(["dropped"])
    lance.dataset(uri).add_columns({"added": "n * 2"})
    ids = [open_table(uri, version=v).schema.fields[-1].id for v in (2, 5)]
    assert ids[0] == ids[1]
    assert feed_rows(uri, 3, 5, ["id", "added"]) == [(3, None, "delete", 3)]


def test_a_new_column_with_the_old_name_of_another_is_null_before(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table_of(uri)
    lance.dataset(uri).delete("id = 3")
    lance.dataset(uri).alter_columns({"path": "n", "name": "m"})
    lance.dataset(uri).add_columns({"n": "id"})
    assert feed_rows(uri, 2, 4, ["id", "m", "n"]) == [(3, 30, None, "delete", 2)]


def test_a_column_that_was_renamed_before_a_restore(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table_of(uri)
    lance.dataset(uri).delete("id = 3")
    lance.dataset(uri).alter_columns({"path": "n", "name": "m"})
    lance.dataset(uri).alter_columns({"path": "m", "name": "k"})
    lance.dataset(uri).delete("id = 4")
    lance.dataset(uri, version=3).restore()
    lance.dataset(uri, version=5).restore()
    lance.dataset(uri, version=3).restore()
    rows = [(3, 30, "delete", 2), (4, 40, "delete", 5), (4, 40, "delete", 7)]
    rows += [(4, 40, "insert", 6), (4, 40, "insert", 8)]
    assert sorted(feed_rows(uri, 2, 8, ["id", "m"])) == sorted(rows)


def test_a_restore_of_a_column_whose_id_another_one_got(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table_of(uri)
    lance.dataset(uri).add_columns(pa.field("dropped", pa.int64()))
    lance.dataset(uri).drop_columns(["dropped"])
    lance.dataset(uri).add_columns({"added": "n * 2"})
    lance.dataset(uri).delete("id = 3")
    lance.dataset(uri, version=2).restore()
    assert open_table(uri, version=5).schema.fields[-1].id == open_table(uri).schema.fields[-1].id
    changes = feed(uri, 5, 6, ["id", "dropped"])
    assert changes.num_rows > 2
    assert changes["dropped"].null_count == changes.num_rows


def nested_table(uri: str) -> None:
    """Version 1, with a struct, a list and a list of structs; version 2 deletes a row."""
    point = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    rows = pa.table(
        {
            "id": [1, 2],
            "point": pa.array([{"x": 1, "y": 5}, {"x": 2, "y": 6}], point),
            "numbers": pa.array([[1], [2]], pa.list_(pa.int32())),
            "points": pa.array([[{"x": 1, "y": 5}], [{"x": 2, "y": 6}]], pa.list_(point)),
        }
    )
    lance.write_dataset(rows, uri, data_storage_version="2.2")
    lance.dataset(uri).delete("id = 2")


@pytest.mark.parametrize("path", ["point.x", "numbers.item", "points.item.x"])
def test_a_field_of_another_type_is_refused(tmp_path: Path, path: str) -> None:
    uri = str(tmp_path / "t")
    nested_table(uri)
    lance.dataset(uri).alter_columns({"path": path, "data_type": pa.int64()})
    with pytest.raises(SchemaMismatchError, match=r"column '\w+' is \w+<.*int32.*> in version 1, "):
        feed(uri, 2, 3)


def test_fields_of_structs_are_null_before_they_were_added(tmp_path: Path) -> None:
    """The new field has the id of a dropped column, and the name that another field had."""
    uri = str(tmp_path / "t")
    nested_table(uri)
    lance.dataset(uri).add_columns({"extra": "cast(id as int)"})
    lance.dataset(uri).delete("id = 1")
    dataset = lance_spark.open_dataset(uri).drop_columns(["extra", "point.y"])
    dataset = dataset.alter_columns({"path": "point.x", "name": "w"})
    dataset = dataset.add_columns(pa.schema([pa.field("point", pa.struct([("x", pa.int32())]))]))
    extra = open_table(uri, version=4).schema.field("extra").id
    assert open_table(uri).schema.field("point.x").id == extra
    rows = feed_rows(uri, 4, dataset.version, ["id", "point"])
    assert rows == [(1, {"w": 1, "x": None}, "delete", 4)]


def test_fields_of_older_versions_may_be_null(tmp_path: Path) -> None:
    """Spark would take the nulls of a field that is never null for values."""
    uri = str(tmp_path / "t")
    point = pa.struct([("x", pa.int32())])
    strict = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    named = [[("a", {"x": 1})], [("a", {"x": 2})]]
    rows = {
        "point": pa.array([{"x": 1}, {"x": None}], point),
        "points": pa.array([[{"x": 1}], [{"x": None}]], pa.list_(point)),
        "named": pa.array(named, pa.map_(pa.string(), strict)),
    }
    lance.write_dataset(pa.table(rows), uri, data_storage_version="2.2")
    lance.dataset(uri).delete("point.x IS NULL")
    for path in ("point.x", "points.item.x"):
        lance_spark.open_dataset(uri).alter_columns({"path": path, "nullable": False})
    assert lance.dataset(uri).schema.types[:2] == [strict, pa.list_(strict)]
    changes = feed(uri, 2, open_table(uri).version, list(rows)).drop_columns(list(FEED))
    assert changes.schema.types == [point, pa.list_(point), pa.map_(pa.string(), point)]
    assert changes.to_pylist() == [
        {"point": {"x": None}, "points": [{"x": None}], "named": named[1]}
    ]


def test_names_of_items_mean_nothing(tmp_path: Path) -> None:
    """After an overwrite, columns are identified by their names, and items by their place."""
    uri = str(tmp_path / "t")
    point = pa.struct([("x", pa.int32())])
    for item, key in (("item", "key"), ("element", "name")):
        lists = pa.list_(pa.field(item, point))
        entries = pa.struct([pa.field(key, pa.string(), nullable=False), ("value", point)])
        maps = pa.map_(entries.field(0), entries.field(1))
        rows = {
            "points": pa.array([[{"x": 1}]], lists),
            "named": pa.array([[("a", {"x": 2})]], maps),
        }
        lance.write_dataset(pa.table(rows), uri, mode="overwrite", data_storage_version="2.2")
    assert feed_rows(uri, 2, 2) == [
        ([{"x": 1}], [("a", {"x": 2})], "delete", 2),
        ([{"x": 1}], [("a", {"x": 2})], "insert", 2),
    ]


def test_versions_that_were_cleaned_up_are_named(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table_of(uri)
    for number in range(3):
        lance.dataset(uri).delete(f"id = {number}")
    lance_spark.open_dataset(uri).cleanup_old_versions(retain_versions=2)
    with pytest.raises(VersionNotFoundError, match=r"version 2, .* the versions 3 to 4; .* is 4$"):
        feed(uri, 2, 4)
    assert feed_rows(uri, 4, 4, ["id"]) == [(2, "delete", 4)]


def test_a_branch_begins_with_the_rows_of_its_version(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    made = table_of(uri).create_branch("side")
    made.delete([("id", "<", 2)])
    version = lance_spark.open_dataset(uri, branch="side").version
    assert feed_rows(made.uri, made.version, version, ["id"]) == [
        (0, "delete", version),
        (1, "delete", version),
    ]
