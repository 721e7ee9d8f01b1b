"""Forms of rows that writes and merges take, differences of versions, conflicts of raw commits."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from tests.interop.shadow.client import Client
from tests.interop.shadow.outcomes import Case

Run = Callable[[Client, Path], Any]
ROWS = pa.table({"id": pa.array([1, 2, 3, 4], pa.int64()), "value": [10, 20, 30, 40]})
SMALL = pa.schema([("id", pa.int64())])


def written(source: Callable[[Path], Any], schema: pa.Schema | None = None, **options: Any) -> Run:
    def run(client: Client, path: Path) -> Any:
        client.write(source(path.parent), path, schema=schema, **options)
        return client.rows(path).sort_by("id")

    return run


def merged(source: Callable[[Path], Any]) -> Run:
    def run(client: Client, path: Path) -> Any:
        old = pa.table({"id": pa.array([1, 9], pa.int64()), "value": [0, 0]})
        client.write(old, path)
        builder = client.open(path).merge_insert("id").when_matched_update_all()
        counts = builder.when_not_matched_insert_all().execute(source(path.parent))
        rows = client.rows(path).sort_by("id")
        return rows, counts["num_inserted_rows"], counts["num_updated_rows"]

    return run


def parquet(folder: Path) -> pads.Dataset:
    pq.write_table(ROWS.slice(0, 2), folder / "first.parquet")
    pq.write_table(ROWS.slice(2), folder / "second.parquet")
    return pads.dataset([folder / "first.parquet", folder / "second.parquet"], format="parquet")


def filtered(folder: Path) -> pads.Dataset:
    return parquet(folder).filter(pads.field("id") > 1).filter(pads.field("id") != 3)


def of_table(read: Callable[[Any], Any]) -> Run:
    """Write what another table of the same package gives."""

    def run(client: Client, path: Path) -> Any:
        client.write(ROWS, path.parent / "source.lance", max_rows_per_file=1)
        source = client.open(path.parent / "source.lance")
        client.write(read(source), path)
        return client.rows(path)

    return run


def own_rows(client: Client, path: Path) -> Any:
    """Append a table to itself."""
    client.write(ROWS, path)
    client.write(client.open(path), path, mode="append")
    return client.rows(path)


SOURCES: dict[str, Callable[[Path], Any]] = {
    "table": lambda _: ROWS,
    "batch": lambda _: ROWS.to_batches()[0],
    "mapping": lambda _: ROWS.to_pydict(),
    "mappings": lambda _: ROWS.to_pylist(),
    "reader": lambda _: ROWS.to_reader(1),
    "frame": lambda _: ROWS.to_pandas(),
    "Arrow dataset in memory": lambda _: pads.InMemoryDataset(ROWS),
    "Arrow dataset of files": parquet,
    "Arrow dataset with filters": filtered,
    "Arrow scanner": lambda folder: parquet(folder).scanner(),
    "Arrow scanner of columns": lambda folder: filtered(folder).scanner(
        columns=["id"], filter=pads.field("id") != 2
    ),
    "Arrow scanner of batches": lambda _: pads.Scanner.from_batches(ROWS.to_reader()),
    "union of Arrow datasets": lambda _: pads.UnionDataset(ROWS.schema, [pads.dataset(ROWS)]),
    "random rows, none": lambda folder: parquet(folder).filter(
        pc.Expression._call("random", []) > 2.0
    ),
}


# Differences of versions


def difference(read: Callable[[Any], Any], **versions: Any) -> Run:
    def run(client: Client, path: Path) -> Any:
        client.write(ROWS, path, enable_stable_row_ids=True)
        client.open(path).insert(ROWS.slice(0, 2))
        client.open(path).delete("id in (2, 3)")
        dataset = client.open(path)
        return read(dataset.delta(**versions))

    return run


def inserted(delta: Any) -> Any:
    return sorted(delta.get_inserted_rows().read_all()["id"].to_pylist())


def deleted(delta: Any) -> Any:
    return sorted(delta.get_deleted_row_ids().read_all()["_rowid"].to_pylist())


# Conflicts


def partial_file(client: Client, path: Path) -> Any:
    """Return the description of a file with one of two columns."""
    client.write(ROWS, path)
    with client.files.LanceFileWriter(str(path / "data" / "x.lance"), SMALL) as writer:
        writer.write_batch(ROWS.select(["id"]).to_batches()[0])
    (file,) = client.Fragment.create_from_file("x.lance", client.open(path), 0).files
    return list(file.fields), list(file.column_indices)


def replacement(client: Client, path: Path, column: str, values: list[int]) -> Any:
    """Return the operation that replaces a column by a new file."""
    name = f"{uuid.uuid4().hex}.lance"
    rows = pa.table({column: pa.array(values, pa.int64())})
    file = path / "data" / name
    with client.files.LanceFileWriter(str(file), rows.schema, version="2.2") as writer:
        writer.write_batch(rows.to_batches()[0])
    fields = (["id", "value", "other"].index(column),)
    group = client.Operation.DataReplacementGroup(0, client.DataFile(name, fields, (0,), 2, 2))
    return client.Operation.DataReplacement([group])


def two_files(client: Client, path: Path) -> Any:
    """Return a table whose columns are in files of their own."""
    client.write(ROWS.select(["id"]), path, data_storage_version="2.2")
    client.open(path).merge(ROWS, "id")
    return client.open(path)


def replaced(column: str, meanwhile: Callable[[Any], object]) -> Run:
    def run(client: Client, path: Path) -> Any:
        dataset = two_files(client, path)
        operation = replacement(client, path, column, [7, 8, 9, 10])
        meanwhile(client.open(path))
        client.commit(str(path), operation, dataset.version)
        newest = client.open(path)
        newest.validate()
        return newest.to_table(), newest.to_table(filter=f"{column} = 9")

    return run


def indexed(column: str) -> Run:
    """Create an index by a handle that is older than a replacement of the column `value`."""

    def run(client: Client, path: Path) -> Any:
        dataset = two_files(client, path)
        operation = replacement(client, path, "value", [7, 8, 9, 10])
        client.commit(str(path), operation, dataset.version)
        dataset.create_scalar_index(column, "BTREE")
        newest = client.open(path)
        return newest.to_table(filter=f"{column} > 2"), len(newest.list_indices())

    return run


def conflict(operation: Callable[[Client, Path], Any], meanwhile: Callable[..., object]) -> Run:
    """Return what a program sees of the error of a commit that lost."""

    def run(client: Client, path: Path) -> Any:
        dataset = two_files(client, path)
        planned = operation(client, path)
        meanwhile(client, path)
        try:
            client.commit(str(path), planned, dataset.version)
        except Exception as error:
            return error.retryable  # type: ignore[attr-defined]
        return "committed"

    return run


def again(client: Client, path: Path) -> None:
    operation = replacement(client, path, "value", [1, 1, 1, 1])
    client.commit(str(path), operation, client.open(path).version)


def overwritten(client: Client, path: Path) -> None:
    client.write(ROWS, path, mode="overwrite")


def appended(client: Client, path: Path) -> Any:
    return client.Operation.Append([client.Fragment.create(str(path), ROWS)])


RUNS: dict[str, Run] = {
    **{f"write of a {name}": written(source) for name, source in SOURCES.items()},
    **{
        f"merge of a {name}": merged(SOURCES[name])
        for name in ("mapping", "mappings", "reader", "frame", "Arrow dataset of files")
    },
    "write of batches": written(lambda _: ROWS.to_batches(max_chunksize=1), ROWS.schema),
    "write of a tuple of batches": written(lambda _: tuple(ROWS.to_batches()), ROWS.schema),
    "write of an iterator": written(lambda _: iter(ROWS.to_batches()), ROWS.schema),
    "write of a generator": written(lambda _: (b for b in ROWS.to_batches()), ROWS.schema),
    "write of nothing": written(lambda _: []),
    "write of nothing with a schema": written(lambda _: [], SMALL),
    "write of an empty iterator": written(lambda _: iter(())),
    "write of wrong items": written(lambda _: iter([{"id": 1}]), SMALL),
    "write of texts as numbers": written(lambda _: [pa.record_batch({"id": ["x"]})], SMALL),
    "write of an object": written(lambda _: object()),
    "write of a frame by a schema": written(
        lambda _: pd.DataFrame({"id": [1, 2]}), pa.schema([("id", pa.int32())])
    ),
    "write of mappings by a schema": written(
        lambda _: [{"id": 1}, {"id": None}], pa.schema([("id", pa.int16())])
    ),
    "write of a table by its schema": written(lambda _: ROWS, ROWS.schema),
    "write of a dataset": of_table(lambda d: d),
    "write of a scanner": of_table(lambda d: d.scanner(["value"], filter="id > 2", batch_size=1)),
    "write of a computed scanner": of_table(lambda d: d.scanner({"id": "id * 2"})),
    "write of a reader of a dataset": of_table(lambda d: d.scanner().to_reader()),
    "own rows": own_rows,
    "inserted from version 0": difference(inserted, begin_version=0, end_version=1),
    "inserted from version 0 on": difference(inserted, begin_version=0, end_version=2),
    "inserted since": difference(inserted, compared_against=1),
    "deleted since": difference(deleted, compared_against=2),
    "deleted by versions": difference(deleted, begin_version=1, end_version=3),
    "deleted before": difference(deleted, begin_version=1, end_version=2),
    "no versions": difference(inserted),
    "a first version alone": difference(inserted, begin_version=1),
    "a first version 0 alone": difference(inserted, begin_version=0),
    "a last version alone": difference(inserted, end_version=2),
    "all versions": difference(inserted, compared_against=1, begin_version=1, end_version=2),
    "a later version": difference(inserted, compared_against=9),
    "file of a column": partial_file,
    "replaced column": replaced("value", lambda d: None),
    "replaced column beside an index": replaced(
        "value", lambda d: d.create_scalar_index("id", "BTREE")
    ),
    "replaced column of an index": replaced(
        "value", lambda d: d.create_scalar_index("value", "BTREE")
    ),
    "replaced column beside an append": replaced("value", lambda d: d.insert(ROWS)),
    "replaced column beside a deletion": replaced("value", lambda d: d.delete("id = 1")),
    "replaced unknown column": replaced("other", lambda d: None),
    "index beside a replaced column": indexed("id"),
    "index of a replaced column": indexed("value"),
    "conflict of replacements": conflict(
        lambda client, path: replacement(client, path, "value", [7, 8, 9, 10]), again
    ),
    "conflict with an overwrite": conflict(appended, overwritten),
}  # fmt: skip
CASES = [Case("sources", name, run) for name, run in RUNS.items()]
