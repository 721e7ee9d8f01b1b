"""Single files, blob values and extension types."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.interop.shadow.client import Client
from tests.interop.shadow.outcomes import Case

Run = Callable[[Client, Path], Any]
ROWS = pa.table(
    {
        "a": [1, None, 3, 4, 5],
        "t": ["x", "", None, "y", "z"],
        "l": [[1.5], None, [], [2.0, None], [3.0]],
        "s": [{"x": 1}, {"x": None}, {"x": 3}, {"x": 4}, {"x": 5}],
    }
)


def written(client: Client, path: Path, data: pa.Table = ROWS, **options: Any) -> Any:
    path.parent.mkdir(exist_ok=True)
    with client.files.LanceFileWriter(str(path), data.schema, **options) as writer:
        writer.write_batch(data)
    return client.files.LanceFileReader(str(path))


def of(fact: Callable[[Any], Any], **options: Any) -> Run:
    return lambda client, path: fact(written(client, path, **options))


def lazily(client: Client, path: Path) -> Any:
    writer = client.files.LanceFileWriter(str(path))
    for batch in ROWS.to_batches(max_chunksize=2):
        writer.write_batch(batch)
    count = writer.close()
    return count, client.files.LanceFileReader(str(path)).read_all().to_table()


def with_metadata(client: Client, path: Path) -> Any:
    writer = client.files.LanceFileWriter(str(path), ROWS.schema)
    writer.add_schema_metadata("k", "v")
    numbers = [writer.add_global_buffer(b"one"), writer.add_global_buffer(b"two")]
    writer.write_batch(ROWS)
    writer.close()
    reader = client.files.LanceFileReader(str(path))
    buffers = [reader.read_global_buffer(number) for number in numbers]
    return numbers, buffers, reader.metadata().schema.metadata, writer.closed


def without_rows(client: Client, path: Path) -> Any:
    client.files.LanceFileWriter(str(path)).close()


def chosen(*columns: str) -> Run:
    def run(client: Client, path: Path) -> Any:
        written(client, path)
        reader = client.files.LanceFileReader(str(path), columns=list(columns))
        return reader.read_all().to_table(), reader.take_rows([1, 3]).to_table()

    return run


def missing(client: Client, path: Path) -> Any:
    return client.files.LanceFileReader(str(path))


def other_rows(rows: pa.Table) -> Run:
    def run(client: Client, path: Path) -> Any:
        writer = client.files.LanceFileWriter(str(path), ROWS.schema)
        writer.write_batch(rows)
        writer.close()
        return client.files.LanceFileReader(str(path)).read_all().to_table()

    return run


def blobs(values: Callable[[Any], list[Any]], **field: Any) -> Run:
    """Write blob values, and read their bytes by positions."""

    def run(client: Client, path: Path) -> Any:
        items = values(client.names)
        schema = pa.schema([client.names.blob_field("b", **field), pa.field("id", pa.int64())])
        data = pa.table([client.names.blob_array(items), pa.array(range(len(items)))], schema)
        client.write(data, path, data_storage_version="2.2")
        dataset = client.open(path)
        kept = [number for number, item in enumerate(items) if item is not None]
        read = [file.readall() for file in dataset.take_blobs("b", indices=kept)]
        kinds = [row["b"] and row["b"]["kind"] for row in dataset.to_table().to_pylist()]
        return read, kinds

    return run


def tokens(**options: Any) -> Run:
    def run(client: Client, path: Path) -> Any:
        from lance_spark import query

        tokenize = getattr(client.names, "tokenize", query.tokenize)
        tokens = tokenize("The Quick-brown foxes, jumping over 3 dogs' naïve tails", **options)
        return [(token.text, token.position) for token in tokens]

    return run


def stored(array: pa.Array, **options: Any) -> Run:
    """Write a column, read it, and read it again by a take and a filter."""

    def run(client: Client, path: Path) -> Any:
        data = pa.table({"x": array, "id": range(len(array))})
        client.write(data, path, max_rows_per_file=2, **options)
        dataset = client.open(path)
        rows = dataset.to_table()
        return (
            rows.schema,
            rows["x"].to_pylist(),
            dataset.take([1, 0])["x"].to_pylist(),
            dataset.to_table(["x"], "id > 0")["x"].to_pylist(),
            dataset.count_rows("x is null"),
        )

    return run


TENSORS = pa.FixedShapeTensorArray.from_numpy_ndarray(
    np.arange(12, dtype=np.float32).reshape(3, 2, 2)
)
TYPES: dict[str, pa.Array] = {
    "uuid": pa.array([uuid.UUID(int=7).bytes, None, uuid.UUID(int=8).bytes], pa.uuid()),
    "tensor": TENSORS,
    "json": pa.ExtensionArray.from_storage(
        pa.json_(), pa.array(['{"a": 1}', None, "[1, 2]"], pa.string())
    ),
    "large binary view": pa.array([b"a", None, b"c"], pa.binary_view()),
    "dictionary of numbers": pa.array([5, None, 5]).dictionary_encode(),
    "large text dictionary": pa.array(["a", None, "b"], pa.large_string()).dictionary_encode(),
    "list of lists": pa.array([[[1], []], None, [None, [2, None]]]),
    "list of vectors": pa.array([[[1.0, 2.0]], None, []], pa.list_(pa.list_(pa.float32(), 2))),
    "struct of lists": pa.array([{"x": [1, None]}, {"x": None}, {"x": []}]),
    "struct of structs": pa.array([{"x": {"y": 1}}, {"x": None}, {"x": {"y": None}}]),
    "vectors of bytes": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.uint8(), 2)),
    "vectors of halves": pa.array([[1.0, 2.0], None, [3, 4]], pa.list_(pa.float32(), 2)).cast(
        pa.list_(pa.float16(), 2)
    ),
    "vectors with a null": pa.array([[1.0, None], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    "map of lists": pa.array([[("a", [1])], None, []], pa.map_(pa.string(), pa.list_(pa.int64()))),
    "long texts": pa.array(["x" * 5000, None, "y" * 100]),
    "equal values": pa.array([3, 3, 3]),
    "nanoseconds": pa.array([1, None, 2**62], pa.timestamp("ns")),
    "seconds in UTC": pa.array([1, None, 5], pa.timestamp("s", "UTC")),
    "wide decimal": pa.array([None, 12, -7], pa.decimal128(38, 10)),
    "empty struct": pa.array([{}, None, {}], pa.struct([])),
}
RUNS: dict[str, Run] = {
    "all rows": of(lambda r: [r.read_all().to_table(), r.num_rows()]),
    "all rows, 2.1": of(lambda r: r.read_all().to_table(), version="2.1"),
    "all rows, 2.0": of(lambda r: r.read_all().to_table(), version="2.0"),
    "all rows, 2.3": of(lambda r: r.read_all().to_table(), version="2.3"),
    "unknown version": of(lambda r: r, version="9.9"),
    "version 0.1": of(lambda r: r, version="legacy"),
    "batches": of(lambda r: [b.num_rows for b in r.read_all(batch_size=2).to_batches()]),
    "range": of(lambda r: r.read_range(1, 3).to_table()),
    "range of nothing": of(lambda r: r.read_range(2, 0).to_table()),
    "range past the end": of(lambda r: r.read_range(3, 9).to_table()),
    "some rows": of(lambda r: r.take_rows([0, 2, 4]).to_table()),
    "no rows": of(lambda r: r.take_rows([]).to_table()),
    "rows in another order": of(lambda r: r.take_rows([3, 1]).to_table()),
    "a row twice": of(lambda r: r.take_rows([1, 1]).to_table()),
    "a row past the end": of(lambda r: r.take_rows([9]).to_table()),
    "schema": of(lambda r: [r.metadata().schema, r.metadata().num_rows]),
    "versions": of(lambda r: [r.metadata().major_version, r.metadata().minor_version]),
    "statistics": of(lambda r: [c.num_pages for c in r.file_statistics().columns]),
    "unknown buffer": of(lambda r: r.read_global_buffer(5)),
    "schema of the first batch": lazily,
    "metadata and buffers": with_metadata,
    "neither schema nor rows": without_rows,
    "one column": chosen("t"),
    "columns in another order": chosen("l", "a"),
    "a child": chosen("s.x"),
    "unknown column": chosen("q"),
    "no columns": chosen(),
    "no file": missing,
    "rows of other types": other_rows(pa.table({"a": ["x"]})),
    "rows in another order of columns": other_rows(ROWS.select(["s", "l", "t", "a"])),
    "stable version": lambda client, path: client.files.stable_version(),
    "blobs": blobs(lambda n: [b"a", None, b"", n.Blob.from_bytes(b"b"), n.Blob.empty()]),
    "blobs of all kinds": blobs(lambda n: [b"a", b"b" * 100_000, b"c" * 5_000_000]),
    "blobs past a threshold": blobs(
        lambda n: [b"a", b"bb", b"ccc"], inline_size_threshold=1, dedicated_size_threshold=2
    ),
    "blobs outside of bases": blobs(lambda n: ["file:///nothing/there"]),
    "blobs without nulls": blobs(lambda n: [b"a", None], nullable=False),
    "no blobs": blobs(lambda n: []),
    "a number as a blob": blobs(lambda n: [3]),
    "a blob of nothing": blobs(lambda n: [n.Blob()]),
    "tokens": tokens(),
    "tokens without stems": tokens(stem=False, remove_stop_words=False),
    "tokens, raw": tokens(base_tokenizer="raw"),
    "tokens, ngrams": tokens(base_tokenizer="ngram"),
    "tokens, upper case": tokens(lower_case=False, stem=False),
    "tokens, short": tokens(max_token_length=6),
    "tokens of an unknown language": tokens(language="Nothing"),
    **{f"type: {name}": stored(array) for name, array in TYPES.items()},
}  # fmt: skip
CASES = [Case("files", name, run) for name, run in RUNS.items()]
