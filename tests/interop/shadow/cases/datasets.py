"""Writes, versions, tags, branches, takes and facts of tables."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.interop.shadow.client import Client
from tests.interop.shadow.outcomes import Case

Run = Callable[[Client, Path], Any]
ROWS = pa.table({"a": [1, 2, 3], "b": ["x", "y", None]})
MORE = pa.table({"a": [4], "b": ["z"]})


def made(client: Client, path: Path) -> Any:
    client.write(ROWS, path)
    client.write(MORE, path, mode="append")
    return client.open(path)


def of(method: Callable[[Any], Any]) -> Run:
    return lambda client, path: method(made(client, path))


def changed(change: Callable[[Any], Any], fact: Callable[[Any], Any]) -> Run:
    def run(client: Client, path: Path) -> Any:
        change(made(client, path))
        return fact(client.open(path))

    return run


def round_trip(array: pa.Array, **options: Any) -> Run:
    def run(client: Client, path: Path) -> Any:
        client.write(pa.table({"x": array}), path, **options)
        return client.open(path).schema, client.rows(path)

    return run


def written(*parts: tuple[Any, str], **options: Any) -> Run:
    def run(client: Client, path: Path) -> Any:
        for rows, mode in parts:
            client.write(rows, path, mode=mode, **options)
        newest = client.open(path)
        return newest.schema, newest.to_table(), newest.version

    return run


TYPES = {
    "int8": pa.array([1, None], pa.int8()),
    "uint64": pa.array([2**64 - 1, None], pa.uint64()),
    "half": pa.array(np.array([1.5, 2.0], np.float16)),
    "double": pa.array([float("nan"), -0.0, None]),
    "bool": pa.array([True, None, False]),
    "text": pa.array(["a", None, ""]),
    "large text": pa.array(["a", None], pa.large_string()),
    "binary": pa.array([b"a", None], pa.binary()),
    "large binary": pa.array([b"a", None], pa.large_binary()),
    "fixed binary": pa.array([b"ab", None], pa.binary(2)),
    "date32": pa.array([1, None], pa.date32()),
    "date64": pa.array([86400000, None], pa.date64()),
    "time32": pa.array([1, None], pa.time32("ms")),
    "time64": pa.array([1, None], pa.time64("ns")),
    "timestamp": pa.array([1, None], pa.timestamp("us")),
    "timestamp with zone": pa.array([1, None], pa.timestamp("ns", "Europe/Berlin")),
    "duration": pa.array([1, None], pa.duration("s")),
    "decimal": pa.array([None, 12], pa.decimal128(10, 2)),
    "decimal256": pa.array([None, 12], pa.decimal256(50, 2)),
    "dictionary": pa.array(["a", "b", "a", None]).dictionary_encode(),
    "list": pa.array([[1, None], None, []]),
    "large list": pa.array([[1, None], None, []], pa.large_list(pa.int64())),
    "vectors": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
    "struct": pa.array([{"x": 1, "y": None}, {"x": None, "y": "b"}]),
    "null struct": pa.array([{"x": 1}, None]),
    "list of structs": pa.array([[{"x": 1}], None, []]),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    "null": pa.nulls(2),
    "interval": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "text view": pa.array(["a", None], pa.string_view()),
}


def old_handle(client: Client, path: Path) -> Any:
    old = made(client, path)
    client.write(MORE, path, mode="append")
    return old.count_rows(), client.open(path).count_rows()


RUNS: dict[str, Run] = {
    **{f"type: {name}": round_trip(array) for name, array in TYPES.items()},
    **{
        f"type: {name}, 2.0": round_trip(array, data_storage_version="2.0")
        for name, array in TYPES.items()
        if name in ("list", "struct", "dictionary", "vectors", "timestamp with zone", "text")
    },
    "create": written((ROWS, "create")),
    "create twice": written((ROWS, "create"), (ROWS, "create")),
    "append": written((ROWS, "create"), (MORE, "append")),
    "append to nothing": written((ROWS, "append")),
    "overwrite": written((ROWS, "create"), (pa.table({"q": [1]}), "overwrite")),
    "append other columns": written((ROWS, "create"), (pa.table({"q": [1]}), "append")),
    "append columns in another order": written(
        (ROWS, "create"), (MORE.select(["b", "a"]), "append")
    ),
    "append fewer columns": written((ROWS, "create"), (MORE.select(["a"]), "append")),
    "append another type": written(
        (ROWS, "create"), (MORE.set_column(0, "a", pa.array([1.5])), "append")
    ),
    "unknown mode": written((ROWS, "nothing")),
    "no rows": written((ROWS.slice(0, 0), "create")),
    "small files": written((ROWS, "create"), max_rows_per_file=1),
    "batches": written((ROWS.to_batches(max_chunksize=2), "create")),
    "reader": lambda c, p: written((ROWS.to_reader(), "create"))(c, p),  # noqa: PLW0108 - a reader is read once
    "a record batch": written((ROWS.to_batches()[0], "create")),
    "pandas rows": written((ROWS.to_pandas(), "create")),
    "batches with a schema": written((ROWS.to_batches(), "create"), schema=ROWS.schema),
    "batches of another type than the schema": written(
        (ROWS.to_batches(), "create"),
        schema=pa.schema([pa.field("a", pa.float64()), pa.field("b", pa.string())]),
    ),
    "nothing with a schema": written(([], "create"), schema=ROWS.schema),
    "dataset": lambda c, p: [
        c.write(made(c, p), str(p) + "_2"),
        c.rows(Path(str(p) + "_2")),
    ][1],
    "stable row ids": lambda c, p: [
        c.write(ROWS, p, enable_stable_row_ids=True),
        c.open(p).delete("a = 1"),
        c.write(MORE, p, mode="append"),
        c.rows(p, with_row_id=True, with_row_address=True),
    ][3],
    "version 0.1": written((ROWS.select(["a"]), "create"), data_storage_version="legacy"),
    "name with a dot": written((pa.table({"a.b": [1]}), "create")),
    "empty name": written((pa.table({"": [1]}), "create")),
    "same name twice": written((pa.Table.from_arrays([pa.array([1])] * 2, ["a", "a"]), "create")),
    "not null with a null": written(
        (pa.table([pa.array([1, None])], pa.schema([pa.field("a", pa.int64(), False)])), "create")
    ),
    "open nothing": lambda c, p: c.open(p),
    "open a version": lambda c, p: [made(c, p), c.open(p, version=1).to_table()][1],
    "open an unknown version": lambda c, p: [made(c, p), c.open(p, version=9)][1],
    "version": of(lambda d: [d.version, d.latest_version]),
    "versions": of(lambda d: len(d.versions())),
    "checkout": of(lambda d: d.checkout_version(1).to_table()),
    "checkout of an unknown version": of(lambda d: d.checkout_version(7)),
    "restore": changed(
        lambda d: d.checkout_version(1).restore(), lambda d: [d.version, d.to_table()]
    ),
    "tags": changed(
        lambda d: d.tags.create("one", 1),
        lambda d: [{k: v["version"] for k, v in d.tags.list().items()}],
    ),
    "checkout of a tag": changed(
        lambda d: d.tags.create("one", 1), lambda d: d.checkout_version("one").to_table()
    ),
    "tag twice": changed(
        lambda d: [d.tags.create("one", 1), d.tags.create("one", 2)], lambda d: d.version
    ),
    "tag of an unknown version": of(lambda d: d.tags.create("one", 9)),
    "deletion of an unknown tag": of(lambda d: d.tags.delete("one")),
    "move of a tag": changed(
        lambda d: [d.tags.create("one", 1), d.tags.update("one", 2)],
        lambda d: d.checkout_version("one").to_table(),
    ),
    "count": of(lambda d: d.count_rows()),
    "count if": of(lambda d: d.count_rows("a > 1")),
    "length": of(len),
    "take": of(lambda d: d.take([3, 0])),
    "take of an array": of(lambda d: d.take(np.array([1, 2]), columns=["a"])),
    "take out of range": of(lambda d: d.take([9])),
    "take of a negative position": of(lambda d: d.take([-1])),
    "head": of(lambda d: d.head(2)),
    "head of more": of(lambda d: d.head(20)),
    "schema": of(lambda d: d.schema),
    "pickle": of(lambda d: pickle.loads(pickle.dumps(d)).to_table()),
    "pickle of an old version": of(
        lambda d: pickle.loads(pickle.dumps(d.checkout_version(1))).to_table()
    ),
    "old handle": old_handle,
    "cleanup": of(lambda d: d.cleanup_old_versions() is not None),
    "compaction": changed(
        lambda d: d.optimize.compact_files() if hasattr(d, "optimize") else d.compact_files(),
        lambda d: [len(d.get_fragments()), d.to_table()],
    ),
    "validate": of(lambda d: d.validate()),
    "storage version": of(lambda d: d.data_storage_version),
    "transaction": of(lambda d: d.read_transaction(2).read_version),
    "transactions": of(lambda d: [t.read_version for t in d.get_transactions()]),
    "sample of all": of(lambda d: d.sample(4).sort_by("a")),
    "sample of too many": of(lambda d: d.sample(9)),
    "slice": of(lambda d: pa.Table.from_batches(d.scanner(limit=2, offset=1).to_batches())),
    "pandas": of(lambda d: d.to_table().to_pandas().to_dict("list")),
    "has indexes": of(lambda d: [len(d.list_indices()), d.has_index]),
    "shallow clone": lambda c, p: made(c, p).shallow_clone(str(p) + "_clone").to_table(),
    "branch": changed(lambda d: d.create_branch("dev"), lambda d: sorted(d.branches.list())),
    "branch with a bad name": of(lambda d: d.create_branch("a b")),
}
CASES = [Case("datasets", name, run) for name, run in RUNS.items()]
