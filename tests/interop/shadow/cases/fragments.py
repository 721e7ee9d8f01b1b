"""Fragments: their facts, reads and changes, and commits of operations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.interop.shadow.client import Client
from tests.interop.shadow.outcomes import Case

Run = Callable[[Client, Path], Any]


def made(client: Client, path: Path, **options: Any) -> Any:
    rows = pa.table({"a": list(range(10)), "b": [f"x{i}" for i in range(10)]})
    client.write(rows, path, max_rows_per_file=4, **options)
    client.open(path).delete("a in (3, 8)")
    return client.open(path)


def first(method: Callable[[Any], Any], number: int = 0) -> Run:
    def run(client: Client, path: Path) -> Any:
        return method(made(client, path).get_fragment(number))

    return run


def committed(plan: Callable[[Client, Any], Any], **options: Any) -> Run:
    """Commit an operation of a case, and return the rows by the same package."""

    def run(client: Client, path: Path) -> Any:
        dataset = made(client, path, **options)
        client.commit(str(path), plan(client, dataset), dataset.version)
        newest = client.open(path)
        newest.validate()
        return newest.to_table(with_row_id=True), newest.version

    return run


def merged(new: Callable[[Any], Any]) -> Run:
    def plan(client: Client, dataset: Any) -> Any:
        parts = [new(fragment) for fragment in dataset.get_fragments()]
        return client.Operation.Merge([part[0] for part in parts], parts[0][1])

    return committed(plan)


def deleted(client: Client, dataset: Any) -> Any:
    changed = [(part.fragment_id, part.delete("a < 6")) for part in dataset.get_fragments()]
    return client.Operation.Delete(
        [fragment for _, fragment in changed if fragment is not None],
        [number for number, fragment in changed if fragment is None],
        "a < 6",
    )


def updated(client: Client, dataset: Any) -> Any:
    values = pa.table({"a": [5, 3], "b": ["new", "none"]})
    fragment, fields = dataset.get_fragment(1).update_columns(values, left_on="a")
    return client.Operation.Update(
        updated_fragments=[fragment], fields_modified=fields, update_mode="rewrite_columns"
    )


def appended(client: Client, dataset: Any) -> Any:
    new = pa.table({"a": [77, 78], "b": ["y", "z"]})
    return client.Operation.Append(client.write_fragments(new, dataset.uri))


def overwritten(client: Client, dataset: Any) -> Any:
    new = pa.table({"q": [1.5]})
    fragments = client.write_fragments(new, dataset.uri, mode="overwrite")
    return client.Operation.Overwrite(new.schema, fragments)


def through_json(client: Client, path: Path) -> Any:
    new = pa.table({"a": [77], "b": ["y"]})
    dataset = made(client, path)
    text = json.dumps(client.Fragment.create(str(path), new).to_json())
    fragments = [client.FragmentMetadata.from_json(text)]
    client.commit(str(path), client.Operation.Append(fragments), dataset.version)
    return client.rows(path)


def batch(client: Client, path: Path) -> Any:
    dataset = made(client, path)
    transactions = [
        client.write_fragments(
            pa.table({"a": [number], "b": ["new"]}), str(path), return_transaction=True
        )
        for number in (50, 60, 70)
    ]
    result = client.commit_batch(str(path), transactions)
    return result["dataset"].to_table(), result["dataset"].version - dataset.version


def created(client: Client, path: Path) -> Any:
    new = pa.table({"a": [1, 2, 3]})
    transaction = client.write_fragments(new, str(path), mode="create", return_transaction=True)
    client.commit(str(path), transaction)
    return client.rows(path), client.open(path).version


def replayed(client: Client, path: Path) -> Any:
    """Commit two deletions of the same fragment: the second is planned on the first version."""
    dataset = made(client, path)
    fragment = dataset.get_fragment(1)
    for condition in ("a = 4", "a = 5"):
        operation = client.Operation.Delete([fragment.delete(condition)], [], condition)
        client.commit(str(path), operation, dataset.version)
    return client.rows(path)


def configured(client: Client, dataset: Any) -> Any:
    return client.Operation.UpdateConfig(
        config_updates=client.Operation.UpdateMap({"one": "1", "two": None}),
        table_metadata_updates=client.Operation.UpdateMap({"t": "v"}),
    )


def session(client: Client, path: Path) -> Any:
    import pickle

    fragment = pickle.loads(pickle.dumps(made(client, path).get_fragment(2)))
    return fragment.to_table()


def json_form(fragment: Any) -> Any:
    form = fragment.metadata.to_json()
    for file in form["files"]:
        file.update(path="", file_size_bytes=0)
    if form["deletion_file"]:
        form["deletion_file"]["id"] = 0
    return form


KEYED = pa.table({"a": [0, 2, 77], "z": ["p", "q", "r"]})
RUNS: dict[str, Run] = {
    "facts": first(
        lambda f: [f.fragment_id, f.physical_rows, f.num_deletions, f.count_rows(), f.schema]
    ),
    "facts without deletions": first(lambda f: [f.num_deletions, f.deletion_file()], 1),
    "metadata": first(lambda f: [f.metadata.id, f.metadata.physical_rows, f.metadata.num_rows]),
    "json": first(json_form),
    "data files": first(
        lambda f: [(list(d.fields), list(d.column_indices)) for d in f.data_files()]
    ),
    "unknown id": first(lambda f: f, 77),
    "ids": lambda c, p: [f.fragment_id for f in made(c, p).get_fragments()],
    "filter of fragments": lambda c, p: made(c, p).get_fragments("a > 5"),
    "count with a filter": first(lambda f: f.count_rows("a > 0")),
    "head": first(lambda f: f.head(2)),
    "head of more": first(lambda f: f.head(20)),
    "take": first(lambda f: f.take([0, 2])),
    "take a column": first(lambda f: f.take([1], columns=["b"])),
    "take a position after deleted rows": first(lambda f: f.take([0]), 2),
    "take out of range": first(lambda f: f.take([3])),
    "to_table": first(lambda f: f.to_table(columns=["b"], filter="a > 0", with_row_id=True)),
    "to_table, limit, offset": first(lambda f: f.to_table(limit=1, offset=1), 1),
    "to_table by position": first(lambda f: f.to_table(["a"], "a < 2")),
    "to_table, expressions": first(lambda f: f.to_table(columns={"x": "a + 1"})),
    "to_batches": first(
        lambda f: pa.Table.from_batches(list(f.to_batches(columns=["a"], batch_size=2)))
    ),
    "scanner": first(lambda f: f.scanner(columns=["a"], limit=2).to_table()),
    "scanner, count": first(lambda f: f.scanner(filter="a > 0").count_rows()),
    "pandas": first(lambda f: f.to_pandas().to_dict("list")),
    "validate": first(lambda f: f.validate()),
    "deletion of nothing": first(lambda f: f.delete("a > 100").num_rows),
    "deletion of all": first(lambda f: f.delete("a >= 0")),
    "deletion by a bad condition": first(lambda f: f.delete("q = 1")),
    "deletion by offsets": first(lambda f: f.delete_rows([0, 3]).num_rows),
    "deletion by all offsets": first(lambda f: f.delete_rows([0, 1, 2])),
    "deletion by offsets out of range": first(lambda f: f.delete_rows([30])),
    "pickle": session,
    "commit: delete": committed(deleted),
    "commit: delete, stable row ids": committed(deleted, enable_stable_row_ids=True),
    "commit: update": committed(updated),
    "commit: append": committed(appended),
    "commit: append, stable row ids": committed(appended, enable_stable_row_ids=True),
    "commit: overwrite": committed(overwritten),
    "commit: restore": committed(lambda client, _: client.Operation.Restore(1)),
    "commit: configuration": committed(configured),
    "commit: json": through_json,
    "commit: create": created,
    "commit: several": batch,
    "commit: two deletions": replayed,
    "merge": merged(lambda f: f.merge(KEYED, "a")),
    "merge by another name": merged(
        lambda f: f.merge(KEYED.rename_columns(["k", "z"]), "a", right_on="k")
    ),
    "merge by row id": merged(
        lambda f: f.merge(
            pa.table({"_rowid": pa.array([0, 1], pa.uint64()), "z": ["p", "q"]}), "_rowid"
        )
    ),
    "merge of two columns": merged(
        lambda f: f.merge(KEYED.append_column("w", pa.array([1.5, 2.5, 3.5])), "a")
    ),
    "merge with a null key": merged(
        lambda f: f.merge(pa.table({"a": pa.array([0, None], pa.int64()), "z": [1, 2]}), "a")
    ),
    "merge by other types": merged(
        lambda f: f.merge(pa.table({"a": pa.array([0], pa.int32()), "z": [1]}), "a")
    ),
    "merge of an existing column": merged(lambda f: f.merge(pa.table({"a": [0], "b": ["p"]}), "a")),
    "merge by an unknown key": merged(lambda f: f.merge(KEYED, "q")),
    "merge_columns, function": merged(
        lambda f: f.merge_columns(
            lambda rows: pa.RecordBatch.from_arrays([rows["a"].cast(pa.float64())], ["w"]), ["a"]
        )
    ),
    "merge_columns, expression": merged(lambda f: f.merge_columns({"w": "a + 1"})),
    "merge_columns, rows": merged(
        lambda f: f.merge_columns(pa.table({"w": list(range(f.count_rows()))}).to_reader())
    ),
    "merge_columns, existing column": merged(lambda f: f.merge_columns({"b": "a + 1"})),
    "update_columns, unknown column": first(
        lambda f: f.update_columns(pa.table({"a": [1], "q": [2]}), left_on="a")
    ),
}
CASES = [Case("fragments", name, run) for name, run in RUNS.items()]
