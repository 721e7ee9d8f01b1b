"""Vector and full-text searches, and indexes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.interop.shadow.client import Client
from tests.interop.shadow.outcomes import Case

Run = Callable[[Client, Path], Any]
WORDS = ["puppy", "crazy", "happy", "merry", "busy"]


def made(client: Client, path: Path, *changes: Callable[[Any], Any]) -> Any:
    vectors = np.random.default_rng(3).integers(-50, 50, (60, 4)).astype(np.float32)
    rows = pa.table(
        {
            "id": list(range(60)),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 4),
            "price": [i * 7 % 60 for i in range(60)],
            "text": [f"{WORDS[i % 5]} {WORDS[i % 4]} number{i}" for i in range(60)],
        }
    )
    client.write(rows, path, max_rows_per_file=25)
    client.open(path).delete("id in (2, 30)")
    for change in changes:
        change(client.open(path))
    return client.open(path)


def of(method: Callable[[Any], Any], *changes: Callable[[Any], Any]) -> Run:
    return lambda client, path: method(made(client, path, *changes))


def nearest(columns: Any = ("id",), **options: Any) -> Run:
    scan = {
        name: options.pop(name)
        for name in ("filter", "prefilter", "limit", "offset")
        if name in options
    }
    query = {"column": "vector", "q": [1.0, 2.0, 3.0, 4.0], **options}

    def run(client: Client, path: Path) -> Any:
        rows = made(client, path).to_table(list(columns), nearest=query, **scan)
        # Sums of floats may differ in the last bits.
        distances = [round(value, 3) for value in rows["_distance"].to_pylist()]
        return rows["id"].to_pylist(), distances, rows.schema.names

    return run


def text(query: Any, *changes: Callable[[Any], Any], **options: Any) -> Run:
    def run(client: Client, path: Path) -> Any:
        dataset = made(client, path, lambda d: d.create_scalar_index("text", "INVERTED"), *changes)
        rows = dataset.to_table(["id"], full_text_query=query, **options)
        return sorted(rows["id"].to_pylist()), rows.schema.names

    return run


def indexed(*indexes: tuple[str, str]) -> list[Callable[[Any], Any]]:
    return [lambda d, pair=pair: d.create_scalar_index(*pair) for pair in indexes]


RUNS: dict[str, Run] = {
    "nearest": nearest(k=5),
    "nearest, default k": nearest(),
    "nearest of more than all": nearest(k=100),
    "nearest, cosine": nearest(k=5, metric="cosine"),
    "nearest, dot": nearest(k=5, metric="dot"),
    "nearest, unknown metric": nearest(k=5, metric="nothing"),
    "nearest, unknown column": nearest(k=5, column="nothing"),
    "nearest, no vectors": nearest(k=5, column="price"),
    "nearest, other dimension": nearest(k=5, q=[1.0, 2.0]),
    "nearest, filter after": nearest(k=10, filter="price > 30"),
    "nearest, filter before": nearest(k=10, filter="price > 30", prefilter=True),
    "nearest, limit": nearest(k=10, limit=3),
    "nearest, limit and offset": nearest(k=10, limit=3, offset=2),
    "nearest, distance range": nearest(k=10, distance_range=(100.0, 4000.0)),
    "nearest, k of 0": nearest(k=0),
    "nearest, named distance": nearest(columns=("_distance", "id"), k=3),
    "nearest of several": of(
        lambda d: d.to_table(
            ["id"], nearest={"column": "vector", "q": [[1.0] * 4, [9.0] * 4], "k": 2}
        ).drop_columns(["_distance"])
    ),
    "text": text("puppy"),
    "text of two words": text("puppy merry"),
    "text without a match": text("nothing"),
    "text in another case": text("PUPPY"),
    "text with columns": text({"query": "happy", "columns": ["text"]}),
    "text of an unknown column": text({"query": "happy", "columns": ["nothing"]}),
    "text with a filter": text("puppy", filter="price > 30", prefilter=True),
    "text after an append": text("number7", lambda d: d.insert(d.take([5]))),
    "text after a deletion": text("puppy", lambda d: d.delete("id < 20")),
    "text without an index": of(lambda d: d.to_table(full_text_query="puppy").num_rows),
    "index, names": of(
        lambda d: sorted(index["name"] for index in d.list_indices()),
        *indexed(("id", "BTREE"), ("price", "BITMAP")),
    ),
    "index of another name": of(
        lambda d: [index["name"] for index in d.list_indices()],
        lambda d: d.create_scalar_index("id", "BTREE", name="mine"),
    ),
    "index twice": of(
        lambda d: [index["name"] for index in d.list_indices()],
        *indexed(("id", "BTREE"), ("id", "BTREE")),
    ),
    "index twice, not replaced": of(
        lambda d: d.create_scalar_index("id", "BTREE", replace=False),
        *indexed(("id", "BTREE")),
    ),
    "index of an unknown column": of(lambda d: d, *indexed(("nothing", "BTREE"))),
    "index of an unknown type": of(lambda d: d, *indexed(("id", "NOTHING"))),
    "index of vectors as numbers": of(lambda d: d, *indexed(("vector", "BTREE"))),
    "dropped index": of(
        lambda d: len(d.list_indices()),
        *indexed(("id", "BTREE")),
        lambda d: d.drop_index("id_idx"),
    ),
    "dropped index of an unknown name": of(lambda d: d.drop_index("nothing")),
    "index after changes": of(
        lambda d: d.to_table(["id"], "id between 20 and 40 or id > 55"),
        *indexed(("id", "BTREE")),
        lambda d: d.insert(d.take([0, 20])),
        lambda d: d.delete("id = 33"),
    ),
    "index, optimised": of(
        lambda d: [d.to_table(["id"], "id < 5"), len(d.list_indices())],
        *indexed(("id", "BTREE")),
        lambda d: d.insert(d.take([0, 20])),
        lambda d: d.optimize.optimize_indices() if hasattr(d, "optimize") else d.optimize_indices(),
    ),
}
CASES = [Case("searches", name, run) for name, run in RUNS.items()]
