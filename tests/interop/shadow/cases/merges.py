"""`merge_insert`, `update`, `delete` and `insert`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.interop.shadow.client import Client
from tests.interop.shadow.outcomes import Case

Run = Callable[[Client, Path], Any]
BASE = pa.table({"a": [1, 2, 3], "b": [1, 1, 1], "c": ["x", "y", "x"]})
NEW = pa.table({"a": [2, 3, 4], "b": [2, 2, 2], "c": ["y", "z", "y"]})


def made(client: Client, path: Path) -> Any:
    client.write(BASE, path, max_rows_per_file=2)
    return client.open(path)


def merged(
    build: Callable[[Any], Any], on: Any = "a", new: pa.Table = NEW, base: pa.Table = BASE
) -> Run:
    def run(client: Client, path: Path) -> Any:
        client.write(base, path, max_rows_per_file=2)
        dataset = client.open(path)
        result = build(dataset.merge_insert(on)).execute(new)
        names = ("num_inserted_rows", "num_updated_rows", "num_deleted_rows")
        counts = [result[name] for name in names]
        return counts, client.rows(path).sort_by("a"), client.open(path).version

    return run


def changed(change: Callable[[Any], Any]) -> Run:
    def run(client: Client, path: Path) -> Any:
        change(made(client, path))
        return client.rows(path).sort_by("a"), client.open(path).version

    return run


def old_handles(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Run:
    """Make two changes by handles of the same version."""

    def run(client: Client, path: Path) -> Any:
        made(client, path)
        handles = client.open(path), client.open(path)
        first(handles[0])
        second(handles[1])
        newest = client.open(path)
        return newest.to_table().sort_by("a"), newest.version

    return run


def with_nulls(table: pa.Table) -> pa.Table:
    return pa.concat_tables(
        [table, table.slice(0, 1).set_column(0, "a", pa.array([None], pa.int64()))]
    )


ALL = lambda m: m.when_matched_update_all().when_not_matched_insert_all()  # noqa: E731
RUNS: dict[str, Run] = {
    "upsert": merged(ALL),
    "upsert on two columns": merged(ALL, on=["a", "b"]),
    "upsert on text": merged(ALL, on="c"),
    "upsert of nothing": merged(ALL, new=NEW.slice(0, 0)),
    "upsert with a null key": merged(ALL, new=with_nulls(NEW), base=with_nulls(BASE)),
    "upsert of a key twice": merged(ALL, new=pa.concat_tables([NEW, NEW.slice(0, 1)])),
    "upsert of some columns": merged(ALL, new=NEW.select(["a", "b"])),
    "upsert of columns in another order": merged(ALL, new=NEW.select(["c", "a", "b"])),
    "upsert of unknown columns": merged(ALL, new=NEW.append_column("q", pa.array([1, 2, 3]))),
    "upsert of other types": merged(ALL, new=NEW.set_column(1, "b", pa.array(["1", "2", "3"]))),
    "upsert on an unknown column": merged(ALL, on="q"),
    "insert if absent": merged(lambda m: m.when_not_matched_insert_all()),
    "update": merged(lambda m: m.when_matched_update_all()),
    "update some columns": merged(
        lambda m: m.when_matched_update_all(), new=NEW.select(["a", "b"])
    ),
    "update if": merged(lambda m: m.when_matched_update_all("source.b > target.b")),
    "update if, insert": merged(
        lambda m: m.when_matched_update_all("target.c = 'x'").when_not_matched_insert_all()
    ),
    "update if nothing holds": merged(lambda m: m.when_matched_update_all("target.b > 100")),
    "update by a bad condition": merged(lambda m: m.when_matched_update_all("q = 1")),
    "replace": merged(lambda m: ALL(m).when_not_matched_by_source_delete()),
    "replace a part": merged(lambda m: ALL(m).when_not_matched_by_source_delete("c = 'x'")),
    "delete others": merged(lambda m: m.when_not_matched_by_source_delete()),
    "delete others if": merged(lambda m: m.when_not_matched_by_source_delete("a > 100")),
    "delete matches": merged(lambda m: m.when_matched_delete()),
    "delete matches, insert": merged(
        lambda m: m.when_matched_delete().when_not_matched_insert_all()
    ),
    "fail": merged(lambda m: m.when_matched_fail().when_not_matched_insert_all()),
    "fail without a match": merged(
        lambda m: m.when_matched_fail().when_not_matched_insert_all(), new=NEW.slice(2)
    ),
    "no action": merged(lambda m: m),
    "no key": merged(ALL, on=[]),
    "delete": changed(lambda d: d.delete("a > 1")),
    "delete nothing": changed(lambda d: d.delete("a > 100")),
    "delete all": changed(lambda d: d.delete("true")),
    "delete by a bad condition": changed(lambda d: d.delete("q > 100")),
    "update by an expression": changed(lambda d: d.update({"b": "b + 1"})),
    "update text by an expression": changed(lambda d: d.update({"c": "upper(c)"})),
    "insert": changed(lambda d: d.insert(NEW)),
    "insert other columns": changed(lambda d: d.insert(pa.table({"q": [1]}))),
    "insert some columns": changed(lambda d: d.insert(NEW.select(["a"]))),
    "insert, overwrite": changed(lambda d: d.insert(NEW, mode="overwrite")),
    "delete by Arrow": changed(lambda d: d.delete(pc.field("a") > 1)),
    "delete if null": changed(lambda d: d.delete("a is null or c is null")),
    "delete by a list": changed(lambda d: d.delete("c in ('x', 'q')")),
    "delete by a pattern": changed(lambda d: d.delete("c like 'x%'")),
    "delete twice": changed(lambda d: [d.delete("a = 1"), d.delete("a = 1")]),
    "delete all, then insert": changed(lambda d: [d.delete("true"), d.insert(NEW)]),
    "delete without retries": changed(lambda d: d.delete("a = 1", conflict_retries=0)),
    "delete of an old handle": old_handles(
        lambda d: d.delete("a = 1"), lambda d: d.delete("a = 2")
    ),
    "delete of a deleted row": old_handles(
        lambda d: d.delete("a = 1"), lambda d: d.delete("a = 1")
    ),
    "insert and delete at once": old_handles(lambda d: d.insert(NEW), lambda d: d.delete("a = 2")),
    "overwrite and delete at once": old_handles(
        lambda d: d.insert(NEW, mode="overwrite"), lambda d: d.delete("a = 2")
    ),
    "drop and delete at once": old_handles(
        lambda d: d.drop_columns(["b"]), lambda d: d.delete("a = 2")
    ),
    "two new columns at once": old_handles(
        lambda d: d.add_columns(pa.field("n", pa.int64())),
        lambda d: d.add_columns(pa.field("m", pa.int64())),
    ),
    "column and insert at once": old_handles(
        lambda d: d.add_columns(pa.field("n", pa.int64())), lambda d: d.insert(NEW)
    ),
    "index and delete at once": old_handles(
        lambda d: d.create_scalar_index("a", "BTREE"), lambda d: d.delete("a = 2")
    ),
    "upsert and delete at once": old_handles(
        lambda d: ALL(d.merge_insert("a")).execute(NEW), lambda d: d.delete("a = 1")
    ),
    "upserts at once": old_handles(
        lambda d: ALL(d.merge_insert("a")).execute(NEW),
        lambda d: ALL(d.merge_insert("a")).execute(NEW),
    ),
    "configuration at once": old_handles(
        lambda d: d.update_config({"k": "1"}), lambda d: d.update_config({"j": "2"})
    ),
    "a key of the configuration at once": old_handles(
        lambda d: d.update_config({"k": "1"}), lambda d: d.update_config({"k": "2"})
    ),
    "restore and insert at once": old_handles(lambda d: d.restore(), lambda d: d.insert(NEW)),
    "upsert without an index": merged(lambda m: ALL(m).use_index(False)),
    "upsert without retries": merged(lambda m: ALL(m).conflict_retries(0)),
    "upsert of large text": merged(
        ALL, new=NEW.set_column(2, "c", NEW["c"].cast(pa.large_string()))
    ),
    "upsert of a table without rows": merged(ALL, base=BASE.slice(0, 0)),
    "delete by a formula of Arrow": lambda c, p: [
        made(c, p),
        c.open(p).delete((pc.field("a") > 1) & (pc.field("c") == "x")),
        c.rows(p).sort_by("a"),
    ][2],
    "upsert of batches": lambda c, p: [
        c.write(BASE, p),
        ALL(c.open(p).merge_insert("a")).execute(NEW.to_reader(max_chunksize=1)),
        c.rows(p).sort_by("a"),
    ][2],
    "upsert with an index": lambda c, p: [
        made(c, p).create_scalar_index("a", "BTREE"),
        ALL(c.open(p).merge_insert("a")).execute(NEW)["num_updated_rows"],
        c.rows(p).sort_by("a"),
    ][1:],
    "upsert with stable row ids": lambda c, p: [
        c.write(BASE, p, enable_stable_row_ids=True),
        ALL(c.open(p).merge_insert("a")).execute(NEW),
        c.rows(p, columns=["a", "_rowid"]).sort_by("a"),
    ][2],
    "truncate": changed(lambda d: d.truncate_table()),
    "merge": changed(lambda d: d.merge(pa.table({"a": [1, 3], "d": ["p", "q"]}), "a")),
    "merge an existing column": changed(lambda d: d.merge(NEW, "a")),
}
CASES = [Case("merges", name, run) for name, run in RUNS.items()]
