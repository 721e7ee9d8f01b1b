"""The cases of `benchmarks/stores.py`: what users do with a table on an object store.

As a program, this module is a client in a process of its own. It reads the name of a case and the
URI of a table from each line of its input, and prints seconds and result as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import pyarrow as pa

#: The tables: their rows, and rows of a fragment.
ROWS, FRAGMENT = 400_000, 50_000
MANY_ROWS, MANY_FRAGMENT = 20_000, 50
DIMENSION = 64
CLIENTS = ("pylance", "s3fs", "obstore")
_WORDS = np.array([f"word{number}" for number in range(2000)])


def rows(count: int, rng: np.random.Generator, start: int = 0) -> pa.Table:
    """Return rows of the tables."""
    numbers = range(start, start + count)
    vectors = pa.array(rng.random(count * DIMENSION, dtype=np.float32))
    return pa.table(
        {
            "id": np.arange(start, start + count),
            "a": rng.integers(0, 1000, count),
            "b": rng.random(count),
            "c": rng.random(count),
            "d": rng.integers(0, 1 << 40, count),
            "s": [f"name of row {number * 7919 % 1000003:010d}" for number in numbers],
            "t": [" ".join(words) for words in _WORDS[rng.integers(0, 2000, (count, 6))]],
            "g": _WORDS[rng.integers(0, 40, count)],
            "ts": pa.array(np.arange(count) * 1000, pa.timestamp("us")),
            "v": pa.FixedSizeListArray.from_arrays(vectors, DIMENSION),
        }
    )


def build(folder: Path, scale: float) -> None:
    """Write the tables by pylance: `big` with indexes, `plain`, and `many` with small fragments."""
    import lance

    rng = np.random.default_rng(1)
    count, fragment = int(ROWS * scale), int(FRAGMENT * scale)
    data = rows(count, rng)
    big = lance.write_dataset(data, str(folder / "big"), max_rows_per_file=fragment)
    for column, index_type in (("id", "BTREE"), ("g", "BITMAP"), ("t", "INVERTED")):
        big.create_scalar_index(column, index_type)
    big.create_index("v", "IVF_PQ", num_partitions=64, num_sub_vectors=16)
    plain = data.drop_columns(["v", "t"])
    lance.write_dataset(plain, str(folder / "plain"), max_rows_per_file=fragment)
    many = data.select(["id", "a", "s"]).slice(0, int(MANY_ROWS * scale))
    lance.write_dataset(many, str(folder / "many"), max_rows_per_file=MANY_FRAGMENT)
    lance.write_dataset(data.select(["id", "a"]).slice(0, 100), str(folder / "warm"))


class Client:
    """A client of Lance with its storage options; this package, and the base of pylance's."""

    def __init__(self, options: dict[str, str]) -> None:
        import lance_spark

        self.package: Any = lance_spark
        self.options = options

    def open(self, uri: str) -> Any:
        return self.package.open_dataset(uri, storage_options=self.options)

    def append(self, uri: str, data: pa.Table) -> Any:
        return self.package.write_dataset(data, uri, mode="append", storage_options=self.options)

    def set_one(self, uri: str, row: int) -> None:
        self.open(uri).update({"a": 1}, f"id = {row}")

    def compact(self, uri: str) -> None:
        self.open(uri).compact_files()


class PylanceClient(Client):
    """pylance."""

    def __init__(self, options: dict[str, str]) -> None:
        import lance

        self.package = lance
        self.options = options

    def open(self, uri: str) -> Any:
        return self.package.dataset(uri, storage_options=self.options)

    def set_one(self, uri: str, row: int) -> None:
        self.open(uri).update({"a": "1"}, f"id = {row}")

    def compact(self, uri: str) -> None:
        self.open(uri).optimize.compact_files()


@dataclass(frozen=True)
class Case:
    """A case.

    Attributes
    ----------
    table : str
        Name of the table. Each run has a copy of it.
    run : callable
        Takes a client and the URI of the copy; returns a number that is the same for all clients.
    rounds : int, optional
        How often it is run, if that differs from the others.
    """

    table: str
    run: Callable[[Client, str], int]
    rounds: int | None = None


def _found(**arguments: Any) -> Callable[[Client, str], int]:
    """Return a case that reads a table, with arguments of `to_table`."""
    return lambda client, uri: client.open(uri).to_table(**arguments).num_rows


def _new_rows() -> pa.Table:
    new = rows(1000, np.random.default_rng(2), 10**6)
    return new.drop_columns(["v", "t"])


def _merge(client: Client, uri: str) -> int:
    merge = client.open(uri).merge_insert("id").when_matched_update_all()
    merge.when_not_matched_insert_all().execute(_new_rows())
    return 0


def _take(client: Client, uri: str) -> int:
    dataset = client.open(uri)
    positions = list(range(11, dataset.count_rows(), max(1, dataset.count_rows() // 100)))
    return dataset.take(positions, columns=["id", "s", "b"]).num_rows


def _done(action: Callable[[Client, str], object]) -> Callable[[Client, str], int]:
    """Return a case that changes a table; the change has no number that all clients share."""

    def run(client: Client, uri: str) -> int:
        action(client, uri)
        return 0

    return run


_NEAREST = {
    "column": "v",
    "q": np.full(DIMENSION, 0.5, np.float32),
    "k": 10,
    "nprobes": 8,
    "refine_factor": 4,
}
CASES: dict[str, Case] = {
    "open": Case("big", lambda client, uri: client.open(uri).count_rows()),
    "one column": Case("plain", _found(columns=["b"])),
    "all columns": Case("plain", _found()),
    "vectors": Case("big", _found(columns=["v"])),
    "filter": Case("plain", _found(columns=["id", "s"], filter="a = 77 and b < 0.1")),
    "take 100 rows": Case("plain", _take),
    "B-tree": Case("big", _found(columns=["id", "s"], filter="id = 1234")),
    "bitmap": Case("big", _found(columns=["id"], filter="g = 'word7'")),
    "vector search": Case("big", _found(columns=["id"], nearest=_NEAREST)),
    "text search": Case("big", _found(columns=["id"], full_text_query="word7 word99", limit=10)),
    "many fragments": Case("many", _found(columns=["a"])),
    "many, filter": Case("many", _found(columns=["id"], filter="a = 5")),
    "append": Case("plain", _done(lambda client, uri: client.append(uri, _new_rows()))),
    "delete": Case("plain", _done(lambda client, uri: client.open(uri).delete("id = 123"))),
    "update": Case("plain", _done(lambda client, uri: client.set_one(uri, 4567))),
    "merge": Case("plain", _merge),
    "compact": Case("many", _done(lambda client, uri: client.compact(uri)), rounds=1),
}


def client_of(name: str, options: dict[str, str]) -> Client:
    """Return a client of `CLIENTS`."""
    if name == "pylance":
        return PylanceClient(options)
    return Client({**options, "file_system": "obstore" if name == "obstore" else "fsspec"})


def main() -> None:
    name, options, warm = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    # pylance warns of columns that searches will not return by default.
    os.environ.setdefault("LANCE_LOG", "error")
    client = client_of(name, options)
    # Imports, connections, and the test whether the server honours conditions are not measured.
    client.open(warm).to_table(filter="a = 1")
    client.append(warm, client.open(warm).to_table())
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        begun = time.perf_counter()
        result = CASES[request["case"]].run(client, request["uri"])
        print(json.dumps([time.perf_counter() - begun, result]), flush=True)


if __name__ == "__main__":
    main()
