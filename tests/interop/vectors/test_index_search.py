"""Vector search by indexes of pylance: the rows and distances of pylance."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import LanceError
from lance_spark.indexes.vectors import neighbors
from lance_spark.indexes.vectors.distances import exact
from lance_spark.indexes.vectors.neighbors import Neighbors, merged
from lance_spark.indexes.vectors.query import parse_nearest
from lance_spark.proto import table_pb2
from lance_spark.scan.metrics import ScanMetrics
from tests.interop.vectors.answers import check_equal, rows, vector_list
from tests.support.cells import ALL_CELLS, every_other

#: Type of the index, metric and parameters.
KINDS: list[tuple[str, str, dict[str, Any]]] = [
    ("IVF_FLAT", "l2", {}),
    ("IVF_FLAT", "cosine", {}),
    ("IVF_FLAT", "dot", {}),
    ("IVF_SQ", "l2", {}),
    ("IVF_SQ", "dot", {}),
    ("IVF_PQ", "l2", {"num_sub_vectors": 4}),
    ("IVF_PQ", "cosine", {"num_sub_vectors": 4}),
    ("IVF_PQ", "dot", {"num_sub_vectors": 4}),
]
#: What a search asks for.
SEARCHES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"nprobes": 3}, {}),
    ({"minimum_nprobes": 2, "maximum_nprobes": 4}, {}),
    ({"search_effort": 0.25}, {}),
    ({"search_effort": 0.8}, {}),
    ({"nprobes": 20}, {}),
    ({"nprobes": 20, "refine_factor": 3}, {}),
    ({"nprobes": 20, "distance_range": (0.5, 14.0)}, {}),
    ({"use_index": False}, {}),
    ({"nprobes": 20}, {"filter": "number = 3"}),
    ({"nprobes": 20}, {"filter": "number = 3", "prefilter": True}),
    ({}, {"filter": "number = 3 AND id < 300", "prefilter": True}),
    ({"nprobes": 20}, {"fast_search": True}),
]


def check_searches(path: Path, seed: int, metric: str = "l2", absolute: float = 1e-6) -> None:
    """Check that both clients find the same rows with each kind of arguments: with the next seed,
    the queries are batches where they are single ones here, and the other way round.
    """
    rng = np.random.default_rng(seed)
    queries = [(rng.normal(size=16), rng.normal(size=(2, 16))) for _ in SEARCHES]
    for place, (options, arguments) in enumerate(SEARCHES):
        for q in every_other(queries[place], seed + place):
            nearest = {"column": "v", "q": q.astype(np.float32), "k": 10, **options}
            check_equal(path, nearest, absolute=absolute, **arguments)
    other = "dot" if metric != "dot" else "l2"
    q = queries[0][0].astype(np.float32)
    check_equal(path, {"column": "v", "q": q, "metric": other})


@pytest.mark.sample(3)
@pytest.mark.parametrize("index", KINDS, ids=lambda index: "-".join(map(str, index[:2])))
def test_kinds_and_metrics(index: tuple[str, str, dict[str, Any]], tmp_path: Path) -> None:
    name, metric, options = index
    path = tmp_path / "t.lance"
    table = rows(np.random.default_rng(2), 0, 3000)
    dataset = lance.write_dataset(table, str(path), max_rows_per_file=1000)
    dataset.create_index("v", name, metric=metric, num_partitions=20, **options)
    # A product of SQ codes is 1 less a difference of large numbers.
    check_searches(path, 3, metric, 2e-5 if (name, metric) == ("IVF_SQ", "dot") else 1e-6)
    (used,) = _plan(path, {"nprobes": 2}).indexes
    assert used.name == "v_idx"


@pytest.mark.parametrize("name", ["IVF_HNSW_SQ", "IVF_HNSW_FLAT"])
def test_graphs(name: str, tmp_path: Path) -> None:
    """Graphs find nearly all of the nearest rows, as with pylance."""
    rng = np.random.default_rng(17)
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(rows(rng, 0, 3000), str(path), max_rows_per_file=1000)
    dataset.create_index("v", name, metric="cosine", num_partitions=3)
    dataset.delete("id % 5 = 1")
    dataset = lance.dataset(str(path))
    own = lance_spark.open_dataset(str(path))
    searches: list[dict[str, Any]] = [
        {},
        {"filter": "number = 3", "prefilter": True},
        {"filter": "number < 5", "prefilter": True},
    ]
    for arguments in searches:
        counts = [0, 0, 0]
        for q in rng.normal(size=(20, 16)).astype(np.float32):
            nearest = {"column": "v", "q": q, "k": 10, "metric": "cosine", "nprobes": 3}
            exact = dataset.to_table(
                columns=["id"], nearest={**nearest, "use_index": False}, **arguments
            )
            answers = [
                client.to_table(columns=["id"], nearest=nearest, **arguments)
                for client in (dataset, own)
            ]
            assert answers[1].num_rows == 10
            for place, answer in enumerate(answers):
                counts[place] += len({*answer["id"].to_pylist()} & {*exact["id"].to_pylist()})
        assert counts[1] >= counts[0] - 4
        assert counts[1] >= 180


@pytest.mark.parametrize(
    ("name", "stable_row_ids"),
    [("IVF_FLAT", True), ("IVF_PQ", False), *([("IVF_PQ", True)] if ALL_CELLS else [])],
)
def test_changed_tables(name: str, stable_row_ids: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(
        rows(rng, 0, 2400),
        str(path),
        max_rows_per_file=800,
        enable_stable_row_ids=stable_row_ids,
    )
    options: dict[str, Any] = {"num_sub_vectors": 4} if name == "IVF_PQ" else {}
    dataset.create_index("v", name, num_partitions=10, **options)
    dataset.delete("id % 7 = 3")
    check_searches(path, 5)
    lance.write_dataset(rows(rng, 2400, 600), str(path), mode="append")
    check_searches(path, 6)
    lance.dataset(str(path)).optimize.optimize_indices(num_indices_to_merge=0)
    check_searches(path, 7)
    changed = rows(rng, 0, 200)
    merge = lance.dataset(str(path)).merge_insert("id").when_matched_update_all()
    merge.execute(changed)
    check_searches(path, 8)
    lance.dataset(str(path)).optimize.compact_files(target_rows_per_fragment=1500)
    check_searches(path, 9)
    dataset = lance.dataset(str(path))
    dataset.delete("id % 3 = 0")
    if not stable_row_ids:
        dataset.optimize.compact_files(target_rows_per_fragment=9000, defer_index_remap=True)
    check_searches(path, 10)
    _check_shares(path)


def test_few_rows_remain(tmp_path: Path) -> None:
    """Most of the nearest rows are deleted: further ones are found."""
    path = tmp_path / "t.lance"
    vectors = np.zeros((2000, 16), np.float32)
    vectors[:, 0] = np.arange(2000)
    table = pa.table({"id": range(2000), "v": vector_list(vectors)})
    dataset = lance.write_dataset(table, str(path))
    dataset.create_index("v", "IVF_FLAT", num_partitions=4)
    dataset.delete("id < 900 AND id != 400")
    for k in (1, 5, 300):
        check_equal(path, {"column": "v", "q": vectors[0], "k": k, "nprobes": 4})
        check_equal(path, {"column": "v", "q": vectors[0], "k": k})


def test_bits(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    path = tmp_path / "t.lance"
    bits = rng.integers(0, 256, (2000, 8)).astype(np.uint8)
    dataset = lance.write_dataset(
        pa.table({"id": range(2000), "v": vector_list(bits)}), str(path), max_rows_per_file=900
    )
    dataset.create_index("v", "IVF_FLAT", metric="hamming", num_partitions=8)
    for q in rng.integers(0, 256, (5, 8)).astype(np.uint8):
        check_equal(path, {"column": "v", "q": q, "k": 30, "nprobes": 8})


@pytest.mark.parametrize("name", ["IVF_FLAT", "IVF_PQ"])
def test_multivectors(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(12)
    path = tmp_path / "t.lance"
    lists = [
        rng.normal(size=(1 + place % 3, 16)).astype(np.float32).tolist() for place in range(900)
    ]
    column = pa.array(lists, pa.list_(pa.list_(pa.float32(), 16)))
    dataset = lance.write_dataset(pa.table({"id": range(900), "v": column}), str(path))
    options: dict[str, Any] = {"num_sub_vectors": 4} if name == "IVF_PQ" else {}
    dataset.create_index("v", name, metric="cosine", num_partitions=4, **options)
    for _ in range(5):
        q = rng.normal(size=(3, 16)).astype(np.float32)
        check_equal(path, {"column": "v", "q": q, "k": 10, "nprobes": 4, "refine_factor": 4})
        check_equal(path, {"column": "v", "q": q, "k": 10, "nprobes": 4})
        check_equal(path, {"column": "v", "q": q[0], "k": 10, "nprobes": 4})


@pytest.mark.parametrize("bounds", [(0.6, None), (None, 0.5)], ids=str)
def test_ranges_of_multivectors(bounds: tuple[float | None, float | None], tmp_path: Path) -> None:
    """The vectors that are searched first can all be of rows that are too near."""
    rng = np.random.default_rng(12)
    items = rng.normal(size=(2_400, 16)).astype(np.float32)
    offsets = pa.array(range(0, 2_401, 2), pa.int32())
    column = pa.ListArray.from_arrays(offsets, vector_list(items))
    dataset = lance.write_dataset(pa.table({"id": range(1_200), "v": column}), tmp_path)
    dataset.create_index("v", "IVF_FLAT", metric="cosine", num_partitions=2)
    nearest = {"column": "v", "q": rng.normal(size=16).astype(np.float32), "k": 10, "nprobes": 2}
    nearest |= {"metric": "cosine", "distance_range": bounds}
    expected = lance.dataset(tmp_path).to_table(
        columns=["id"], nearest={**nearest, "use_index": False}
    )
    assert len(expected) == 10
    result = lance_spark.open_dataset(str(tmp_path)).to_table(["id"], nearest=nearest)
    assert result["id"].to_pylist() == expected["id"].to_pylist()


@pytest.mark.parametrize("bounds", [(0.4, 0.7), (0.6, None), (None, 0.5)], ids=str)
def test_ranges_of_distances_that_are_measured_again(
    bounds: tuple[float | None, float | None], tmp_path: Path
) -> None:
    """Distances of codes are twice as large. pylance compares both with the bounds."""
    rng = np.random.default_rng(41)
    dataset = lance.write_dataset(rows(rng, 0, 2_000), tmp_path)
    dataset.create_index("v", "IVF_SQ", metric="cosine", num_partitions=2)
    q = rng.normal(size=16).astype(np.float32)
    nearest = {"column": "v", "q": q, "k": 10, "nprobes": 2, "metric": "cosine"}
    nearest |= {"distance_range": bounds}
    for options in ({"refine_factor": 8}, {}):
        if not options:
            # Their rows are measured, and so are those of the index again.
            lance.write_dataset(rows(rng, 2_000, 5), tmp_path, mode="append")
        expected = lance.dataset(tmp_path).to_table(
            columns=["id"], nearest={**nearest, "use_index": False}
        )
        result = lance_spark.open_dataset(str(tmp_path)).to_table(
            ["id"], nearest={**nearest, **options}
        )
        assert len(result) == len(expected) == 10
        assert len({*result["id"].to_pylist()} & {*expected["id"].to_pylist()}) >= 6


@pytest.mark.parametrize("damage", ["missing", "truncated", "codes", "version", "type"])
def test_damaged_indexes_are_left_out(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(rows(np.random.default_rng(13), 0, 1500), str(path))
    dataset.create_index("v", "IVF_PQ", num_partitions=4, num_sub_vectors=4)
    q = np.full(16, 0.25, np.float32)
    nearest = {"column": "v", "q": q, "k": 20, "nprobes": 4}
    expected = dataset.to_table(columns=["id"], nearest={**nearest, "use_index": False})
    opened = lance_spark.open_dataset(str(path))
    if damage in ("version", "type"):
        section = table_pb2.IndexSection.FromString(opened._table.manifest.index_section or b"")
        if damage == "version":
            section.indices[0].index_version = 99
        else:
            section.indices[0].index_details.type_url = "/lance.index.pb.OtherDetails"
        object.__setattr__(opened._table.manifest, "index_section", section.SerializeToString())
    else:
        (index,) = path.glob("_indices/*/index.idx")
        (codes,) = path.glob("_indices/*/auxiliary.idx")
        if damage == "missing":
            index.unlink()
        elif damage == "truncated":
            index.write_bytes(index.read_bytes()[:-30])
        else:
            content = codes.read_bytes()
            codes.write_bytes(content[:64] + bytes(len(content) - 464) + content[-400:])
    table = opened.to_table(["id"], nearest=nearest)
    if damage != "codes":
        assert table["id"].equals(expected["id"])
    with_refinement = opened.to_table(["id"], nearest={**nearest, "use_index": False})
    assert with_refinement["id"].equals(expected["id"])


def _plan(path: Path, options: dict[str, Any], q: Any = None) -> Any:
    query = np.full(16, 0.25, np.float32) if q is None else q
    dataset = lance_spark.open_dataset(str(path))
    return dataset._reader.plan_nearest(parse_nearest({"column": "v", "q": query, **options}))


def _neighbors(task: Any) -> Neighbors:
    return task.neighbors(ScanMetrics(), task.opened())  # type: ignore[no-any-return]


def _check_shares(path: Path) -> None:
    """Check that shares of a search find the rows of the whole search, or nearer ones."""
    dataset = lance_spark.open_dataset(str(path))
    q = np.random.default_rng(14).normal(size=(6, 16)).astype(np.float32)
    for options in ({"nprobes": 10}, {"nprobes": 10, "refine_factor": 2}, {"use_index": False}):
        search = _plan(path, options, q)
        schema = dataset._reader.nearest_schema(["id"], is_batch=True)

        def task(part: Any, schema: Any = schema) -> Any:
            return pickle.loads(pickle.dumps(dataset._reader.nearest_task(part, schema, (), ())))

        whole = _neighbors(task(search))
        shares = search.shares(search.cost // 4)
        assert len(shares) > 1
        parts = [_neighbors(task(share)) for share in shares]
        result = merged(parts, 10)
        assert len(result) == len(whole)
        assert (result.distances <= whole.distances * (1 + 1e-6)).all()
        if not search.measures_again:
            assert np.array_equal(result.ids, whole.ids)
        assert sum(batch.num_rows for batch in task(search).batches()) == len(whole)


def test_fast_search_needs_the_index(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(rows(np.random.default_rng(15), 0, 800), str(path))
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    (codes,) = path.glob("_indices/*/auxiliary.idx")
    codes.unlink()
    opened = lance_spark.open_dataset(str(path))
    nearest = {"column": "v", "q": [0.5] * 16}
    assert opened.to_table(nearest=nearest).num_rows == 10
    assert opened.to_table(nearest=nearest, fast_search=True).num_rows == 0


def test_errors_of_data_files_are_raised(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(rows(np.random.default_rng(16), 0, 800), str(path))
    (data,) = path.glob("data/*.lance")
    data.write_bytes(data.read_bytes()[:-50])
    with pytest.raises(LanceError):
        lance_spark.open_dataset(str(path)).to_table(nearest={"column": "v", "q": [0.5] * 16})


def test_vectors_of_a_batch_are_measured_again_for_their_own_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not each query with the rows of all other queries."""
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(rows(np.random.default_rng(31), 0, 2000), str(path))
    dataset.create_index("v", "IVF_PQ", num_partitions=8, num_sub_vectors=4)
    num_pairs = []

    def counted(metric: Any, queries: Any, vectors: Any, pairs: Any) -> Any:
        num_pairs.append(len(pairs[0]))
        return exact(metric, queries, vectors, pairs)

    monkeypatch.setattr(neighbors, "exact", counted)
    q = np.random.default_rng(32).normal(size=(40, 16)).astype(np.float32)
    check_equal(path, {"column": "v", "q": q, "k": 5, "nprobes": 4, "refine_factor": 4})
    assert sum(num_pairs) == 40 * 5 * 4


def test_shares_go_on_if_rows_were_deleted(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    table = rows(np.random.default_rng(33), 0, 3000)
    dataset = lance.write_dataset(table, str(path))
    dataset.create_index("v", "IVF_FLAT", num_partitions=60)
    q = np.full(16, 0.25, np.float32)
    order = np.argsort(((np.stack(table["v"].to_numpy()) - q) ** 2).sum(axis=1))
    dataset.delete(f"id in ({', '.join(map(str, order[:2940]))})")
    opened = lance_spark.open_dataset(str(path))
    search = _plan(path, {}, q)
    shares = search.shares(1)
    assert len(shares) > 4
    schema = opened._reader.nearest_schema(["id"])
    parts = [_neighbors(opened._reader.nearest_task(share, schema, (), ())) for share in shares]
    nearest_rows = merged(parts, 10)
    assert len(nearest_rows) == 10
    assert set(nearest_rows.ids.tolist()) <= set(order[2940:].tolist())


def test_shares_go_on_if_the_index_has_rows_of_other_fragments(tmp_path: Path) -> None:
    """The files of an index keep the rows of a fragment whose vectors were replaced."""
    path = tmp_path / "t.lance"
    table = rows(np.random.default_rng(33), 0, 3000)
    q = np.full(16, 0.25, np.float32)
    order = np.argsort(((np.stack(table["v"].to_numpy()) - q) ** 2).sum(axis=1))
    dataset = lance.write_dataset(table.take(order), str(path), max_rows_per_file=2_940)
    dataset.create_index("v", "IVF_FLAT", num_partitions=60)
    opened = lance_spark.open_dataset(str(path))
    opened = opened.update({"v": [9.0] * 16}, f"id = {order[0]}", mode="columns")
    query = parse_nearest({"column": "v", "q": q})
    search = opened._reader.plan_nearest(query, fast_search=True)
    assert list(search.covered) == [1]
    shares = search.shares(1)
    assert len(shares) > 4
    schema = opened._reader.nearest_schema(["id"])
    parts = [_neighbors(opened._reader.nearest_task(share, schema, (), ())) for share in shares]
    assert len(merged(parts, 10)) == 10


def test_any_number_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(rows(np.random.default_rng(34), 0, 500), str(path))
    dataset.create_index("v", "IVF_FLAT", num_partitions=4)
    opened = lance_spark.open_dataset(str(path))
    for k in (500, 2**40, 2**63, 2**70):
        nearest = {"column": "v", "q": [0.5] * 16, "k": k}
        assert opened.to_table(["id"], nearest=nearest).num_rows == 500
        nearest["use_index"] = False
        assert opened.to_table(["id"], nearest=nearest).num_rows == 500


def test_an_index_of_other_vectors_is_left_out(tmp_path: Path) -> None:
    """For example, because the file of another index has its place."""
    path = tmp_path / "t.lance"
    table = rows(np.random.default_rng(35), 0, 600)
    short = vector_list(np.random.default_rng(36).normal(size=(600, 8)).astype(np.float32))
    dataset = lance.write_dataset(table.append_column("w", short), str(path))
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    before = set(path.glob("_indices/*"))
    dataset.create_index("w", "IVF_FLAT", num_partitions=2)
    (own,) = before
    (other,) = set(path.glob("_indices/*")) - before
    for name in ("index.idx", "auxiliary.idx"):
        (own / name).write_bytes((other / name).read_bytes())
    opened = lance_spark.open_dataset(str(path))
    nearest = {"column": "v", "q": [0.5] * 16}
    result = opened.to_table(["id"], nearest=nearest)
    assert result.equals(opened.to_table(["id"], nearest={**nearest, "use_index": False}))
