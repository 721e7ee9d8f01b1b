"""Blob columns: descriptors, bytes, files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.interop.shadow.client import Client
from tests.interop.shadow.outcomes import Case

Run = Callable[[Client, Path], Any]
VALUES = [b"foo", b"bar" * 1000, None, b"", b"quux"]


def made(client: Client, path: Path) -> Any:
    field = pa.field("blob", pa.large_binary(), metadata={b"lance-encoding:blob": b"true"})
    schema = pa.schema([pa.field("id", pa.int64()), field])
    rows = pa.table([pa.array(range(5)), pa.array(VALUES, pa.large_binary())], schema)
    client.write(rows, path, data_storage_version="2.1", max_rows_per_file=3)
    return client.open(path)


def of(method: Callable[[Any], Any]) -> Run:
    return lambda client, path: method(made(client, path))


def contents(files: Any) -> list[Any]:
    return [None if file is None else file.readall() for file in files]


def seeking(dataset: Any) -> Any:
    (file,) = dataset.take_blobs("blob", indices=[1])
    with file:
        parts = [file.size(), file.read(4), file.tell(), file.seek(10), file.read(5)]
        parts += [file.seek(-3, 2), file.read(), file.read(), file.readable(), file.seekable()]
    return [*parts, file.closed]


RUNS: dict[str, Run] = {
    "schema": of(lambda d: d.schema),
    "descriptors": of(lambda d: d.to_table().schema.field("blob").type.num_fields),
    "sizes": of(lambda d: [(row["blob"] or {}).get("size") for row in d.to_table().to_pylist()]),
    "bytes": of(lambda d: d.scanner(blob_handling="all_binary").to_table()),
    "all descriptions": of(
        lambda d: d.scanner(blob_handling="all_descriptions").to_table().schema.names
    ),
    "count": of(lambda d: d.count_rows("id > 1")),
    "filter": of(lambda d: d.to_table(["id"], "id > 1")),
    "files by position": of(lambda d: contents(d.take_blobs("blob", indices=[1, 0, 4]))),
    "files by row id": of(lambda d: contents(d.take_blobs("blob", ids=[0, 1]))),
    "files by address": of(lambda d: contents(d.take_blobs("blob", addresses=[0, 1]))),
    "file of a null": of(lambda d: contents(d.take_blobs("blob", indices=[2]))),
    "file of no bytes": of(lambda d: contents(d.take_blobs("blob", indices=[3]))),
    "frame of a scanner": of(lambda d: contents(d.scanner(["blob"]).to_pandas()["blob"])),
    "frame of a scanner, bytes": of(
        lambda d: list(d.scanner(["blob"], limit=2).to_pandas(blob_mode="bytes")["blob"])
    ),
    "frame of a fragment": of(lambda d: contents(d.get_fragment(1).to_pandas(["blob"])["blob"])),
    "no rows": of(lambda d: contents(d.take_blobs("blob", indices=[]))),
    "files out of range": of(lambda d: contents(d.take_blobs("blob", indices=[9]))),
    "files of no blob column": of(lambda d: contents(d.take_blobs("id", indices=[0]))),
    "files of an unknown column": of(lambda d: contents(d.take_blobs("q", indices=[0]))),
    "files by two selections": of(lambda d: contents(d.take_blobs("blob", ids=[0], indices=[0]))),
    "files by no selection": of(lambda d: contents(d.take_blobs("blob"))),
    "seeking": of(seeking),
    "filter of null blobs": of(lambda d: d.to_table(["id"], "blob is null")),
    "filter of blobs": of(lambda d: d.to_table(["id"], "blob = 'foo'")),
    "ranges": of(
        lambda d: [
            bytes(part)
            for file in d.take_blobs("blob", indices=[1])
            for part in file.read_ranges([(0, 3), (10, 2)])
        ]
    ),
    "range past the end": of(lambda d: d.take_blobs("blob", indices=[0])[0].read_range(2, 9)),
    "blobs of a filter": of(
        lambda d: d.scanner(["blob"], "id < 2", blob_handling="all_binary").to_table()
    ),
    "blobs after a deletion": of(
        lambda d: [d.delete("id = 0"), contents(d.take_blobs("blob", ids=[1]))][1]
    ),
    "unknown handling": of(lambda d: d.scanner(blob_handling="nothing").to_table()),
    "sort by blobs": of(lambda d: d.scanner(order_by=["blob"]).to_table()),
}
CASES = [Case("blobs", name, run) for name, run in RUNS.items()]
