"""`merge_insert`, `update`, `delete` and `insert`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

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
    "truncate": changed(lambda d: d.truncate_table()),
    "merge": changed(lambda d: d.merge(pa.table({"a": [1, 3], "d": ["p", "q"]}), "a")),
    "merge an existing column": changed(lambda d: d.merge(NEW, "a")),
}
CASES = [Case("merges", name, run) for name, run in RUNS.items()]
