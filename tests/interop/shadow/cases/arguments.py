"""Names and places of arguments: all those of pylance are taken, or refused with a reason."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.interop.shadow.client import Client
from tests.interop.shadow.outcomes import Case

Run = Callable[[Client, Path], Any]
ROWS = pa.table({"a": range(8), "b": [f"x{number % 3}" for number in range(8)]})
_ROWID = "_rowid"


def made(client: Client, path: Path) -> Any:
    client.write(ROWS, path, max_rows_per_file=3)
    return client.open(path)


def of(method: Callable[[Any], Any]) -> Run:
    return lambda client, path: method(made(client, path))


def opened(**options: Any) -> Run:
    def run(client: Client, path: Path) -> Any:
        made(client, path)
        return client.open(path, **options).to_table()

    return run


def written(**options: Any) -> Run:
    def run(client: Client, path: Path) -> Any:
        client.write(ROWS, path, **options)
        return client.rows(path)

    return run


def inserted(**options: Any) -> Run:
    def run(client: Client, path: Path) -> Any:
        made(client, path).insert(ROWS.slice(0, 1), **options)
        return client.open(path).count_rows()

    return run


def fragments(**options: Any) -> Run:
    def run(client: Client, path: Path) -> Any:
        made(client, path)
        return [part.num_rows for part in client.write_fragments(ROWS, str(path), **options)]

    return run


def changed(change: Callable[[Any], Any], fact: Callable[[Any], Any] | None = None) -> Run:
    def run(client: Client, path: Path) -> Any:
        change(made(client, path))
        newest = client.open(path)
        return newest.to_table().sort_by("a") if fact is None else fact(newest)

    return run


def committed(**options: Any) -> Run:
    def run(client: Client, path: Path) -> Any:
        dataset = made(client, path)
        parts = client.write_fragments(ROWS, str(path))
        operation = client.Operation.Append(parts)
        return client.commit(str(path), operation, dataset.version, **options).count_rows()

    return run


def transaction(client: Client, path: Path) -> Any:
    operation = client.Operation.Append([])
    made_of = client.names.Transaction(1, operation, transaction_properties={"k": "v"})
    return dict(made_of.transaction_properties)


def fragment(number: int) -> Run:
    return lambda client, path: client.Fragment(made(client, path), number).to_table()


def base(**options: Any) -> Run:
    def run(client: Client, _: Path) -> Any:
        result = client.BasePath(**options)
        return result.id, result.path, result.name, result.is_dataset_root

    return run


RUNS: dict[str, Run] = {
    "block size": opened(block_size=1024),
    "sizes of caches": opened(index_cache_size_bytes=1 << 20, metadata_cache_size_bytes=1 << 20),
    "read parameters": opened(read_params={}),
    "no session": opened(session=None),
    "as of a time": opened(asof=datetime.datetime(2100, 1, 1)),
    "default options of scans": opened(default_scan_options={"columns": ["a"]}),
    "no default options of scans": opened(default_scan_options=None),
    "rows by pylance's name": lambda client, path: client.write(
        data_obj=ROWS, uri=path
    ).count_rows(),
    "rows of a group": written(max_rows_per_group=4),
    "sizes of pages": written(max_page_bytes=1000, data_cache_bytes=1000),
    "no progress": written(progress=None, session=None, use_legacy_format=None),
    "names of manifests": written(enable_v2_manifest_paths=True),
    "old names of manifests": written(enable_v2_manifest_paths=False),
    "insert with rows of a group": inserted(max_rows_per_group=4),
    "fragments with rows of a group": fragments(max_rows_per_group=4, progress=None),
    "committed, names of manifests": committed(enable_v2_manifest_paths=True),
    "committed, no choice": committed(enable_v2_manifest_paths=None, enable_stable_row_ids=None),
    "transaction with properties": transaction,
    "update where": changed(lambda d: d.update({"b": "'q'"}, where="a = 1"), lambda d: d.count_rows()),
    "update, no file version": changed(
        lambda d: d.update({"b": "'q'"}, "a = 1", data_storage_version=None), lambda d: d.count_rows()
    ),
    "delete predicate": changed(lambda d: d.delete(predicate="a = 1")),
    "statistics of an index": changed(
        lambda d: d.create_scalar_index("a", "BTREE"),
        lambda d: d.index_statistics(index_name="a_idx")["num_indexed_rows"],
    ),
    "index with a callback": changed(
        lambda d: d.create_scalar_index("a", "BTREE", progress_callback=lambda _: None)
    ),
    "index with no choice": changed(
        lambda d: d.create_scalar_index(
            "a", "BTREE", index_uuid=None, progress_callback=None, format_version=None
        )
    ),
    "index with an id": changed(
        lambda d: d.create_scalar_index(
            "a", "BTREE", index_uuid="7f4bd7a6-9a0c-4b53-8b6c-3c8bb7ff0001"
        )
    ),
    "compaction": changed(
        lambda d: d.optimize.compact_files(
            batch_size=100, compaction_mode="reencode", max_rows_per_group=4
        )
    ),
    "compaction, another file version": changed(
        lambda d: d.optimize.compact_files(data_storage_version="2.0")
    ),
    "table by place": of(
        lambda d: d.to_table(["a"], None, 3, 1, None, 2, None, 2, 2, True)
    ),
    "batches by place": of(
        lambda d: pa.Table.from_batches(
            d.to_batches(["a"], None, 3, 1, None, 2, None, 2, 2, True)
        )
    ),
    "frame by place": of(lambda d: d.to_pandas(["a"], "a > 2", 3, 1, None, 2).to_dict()),
    "fragment by place": of(
        lambda d: d.get_fragment(1).to_table(["a"], "a > 3", 1, 1, True, True)
    ),
    "frame of a fragment by place": of(
        lambda d: d.get_fragment(1).to_pandas(["a"], "a > 3", 1, 0, 2, True).to_dict()
    ),
    "frame of a scanner": of(lambda d: d.scanner(["a"]).to_pandas(blob_mode="lazy").to_dict()),
    "fragment of a number": fragment(1),
    "fragment of an unknown number": fragment(9),
    "session of columns": of(lambda d: d.get_fragment(1).open_session(["b"]).take([0, 2])),
    "session with addresses": of(
        lambda d: d.get_fragment(1).open_session(["b"], True).take([0, 2])
    ),
    "session of all columns with addresses": of(
        lambda d: d.get_fragment(1).open_session(with_row_address=True).take([1])
    ),
    "take of expressions": of(lambda d: d.take([5, 0, 5], {"x": "a + 1", "b": "b"})),
    "take of a constant": of(lambda d: d.take([5, 0], {"x": "1"}).num_rows),
    "take of a hidden column": of(lambda d: d.take([5, 0], {"x": "a", "r": _ROWID})),
    "take of an unknown expression": of(lambda d: d.take([5], {"x": "q + 1"})),
    "take of expressions in a fragment": of(
        lambda d: d.get_fragment(1).take([2, 0], {"x": "a + 1"})
    ),
    "sample of expressions": of(lambda d: sorted(d.sample(8, {"x": "a + 1"})["x"].to_pylist())),
    "filter of expressions": of(lambda d: d.to_table(filter={"expr_filter": "a > 5"})),
    "filter of nothing": of(lambda d: d.to_table(filter={})),
    "base path by names": base(path="/x", name="n", id=3),
    "base path by its path": base(path="/x"),
}  # fmt: skip
CASES = [Case("arguments", name, run) for name, run in RUNS.items()]
