"""Searches with odd parameters and of odd tables: the rows of pylance, or an error of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, LanceError
from tests.interop.vectors.answers import Vectors, check_equal, vector_list
from tests.support.cells import cells

ROWS, DIMENSION = 600, 8
QUERY = np.full(DIMENSION, 0.3, np.float32)
TYPES = [None, "IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_HNSW_FLAT"]
#: All rows of an index are measured by their vectors.
EXACT = {"nprobes": 100, "refine_factor": 100, "ef": 2_000}


def vectors(count: int = ROWS, seed: int = 0) -> Vectors:
    return np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)


def table(matrix: Vectors, first: int = 0, mask: Any = None, column: str = "v") -> pa.Table:
    ids = np.arange(first, first + len(matrix))
    return pa.table({"id": ids, column: vector_list(matrix, mask), "number": ids % 10})


def index(path: Path, index_type: str | None, client: Any = lance.dataset, **options: Any) -> None:
    if index_type is not None:
        options = {"num_partitions": 4, "column": "v", "replace": True, **options}
        if index_type == "IVF_PQ":
            options["num_sub_vectors"] = 4
        client(str(path)).create_index(index_type=index_type, **options)


def check(path: Path, *, column: str = "v", q: Any = QUERY, **options: Any) -> pa.Table:
    """Compare both clients' exact answers, by an index and without, with each other."""
    arguments = {key: options.pop(key) for key in ("filter", "prefilter") if key in options}
    nearest = {"column": column, "q": q, "k": 20, **EXACT, **options}
    result = check_equal(path, nearest, **arguments)
    scanned = check_equal(path, {**nearest, "use_index": False}, **arguments)
    assert result["id"].to_pylist() == scanned["id"].to_pylist()
    return result


def refused(path: Path, nearest: dict[str, Any]) -> None:
    """Check that both clients refuse a search."""
    arguments = {"columns": ["id"], "nearest": {"column": "v", "q": QUERY, **nearest}}
    with pytest.raises(LanceError):
        lance_spark.open_dataset(str(path)).to_table(**arguments)
    with pytest.raises((ValueError, TypeError, IndexError, OSError)):
        lance.dataset(str(path)).to_table(**arguments)


@pytest.fixture(scope="module", params=TYPES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("odd") / "t.lance"
    lance.write_dataset(table(vectors()), str(path), max_rows_per_file=250)
    index(path, request.param)
    return path


SEARCHES: list[dict[str, Any]] = [
    {"k": 5_000},
    {"nprobes": 1_000},
    {"minimum_nprobes": 1, "maximum_nprobes": 1_000},
    {"distance_range": (9.0, 1.0)},
    {"distance_range": (3.0, 3.0)},
    {"distance_range": (float("-inf"), float("inf")), "k": 700},
    {"distance_range": (None, None)},
    {"distance_range": (2.0, 4.0), "refine_factor": 5, "k": 100},
    {"q": np.zeros(DIMENSION, np.float32)},
    {"q": QUERY.astype(np.float64)},
    {"q": [1] * DIMENSION},
    {"q": QUERY[None]},
    {"q": np.stack([QUERY, -QUERY]), "k": 50, "distance_range": (2.0, 6.0)},
    {"q": np.stack([QUERY, -QUERY]), "k": 5, "refine_factor": 50},
    {"metric": "cosine"},
    {"refine_factor": 500},
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_parameters(path: Path, search: dict[str, Any]) -> None:
    check_equal(path, {"column": "v", "q": QUERY, "k": 10, "nprobes": 4, "ef": 5_000, **search})


REFUSED: list[dict[str, Any]] = [
    {"k": 0},
    {"k": -1},
    {"nprobes": 0},
    {"minimum_nprobes": 0},
    {"maximum_nprobes": 0},
    {"minimum_nprobes": 5, "maximum_nprobes": 2},
    {"refine_factor": 0},
    {"q": np.zeros(3, np.float32)},
    {"q": np.zeros(DIMENSION * 2 + 1, np.float32)},
    {"q": []},
    {"metric": "hamming"},
    {"column": "id"},
    {"column": "missing"},
]


@pytest.mark.parametrize("search", REFUSED, ids=str)
def test_parameters_that_both_refuse(path: Path, search: dict[str, Any]) -> None:
    refused(path, search)


def test_numbers_without_bound(path: Path) -> None:
    """pylance allocates memory for `k` rows, and ends the process."""
    dataset = lance_spark.open_dataset(str(path))
    for search in ({"k": 1 << 62}, {"refine_factor": 1 << 40}, {"ef": 1 << 40}):
        nearest = {"column": "v", "q": QUERY, "nprobes": 4, **search}
        result = dataset.to_table(["id"], nearest=nearest)
        assert result.num_rows == (ROWS if "k" in search else 10)


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_queries_that_are_infinitely_far(path: Path, value: float) -> None:
    """Without a distance there is no row. Infinite distances are those of any rows.

    Codes of SQ are made of the nearest value that they can have, also of a query, as in pylance.
    """
    q = np.full(DIMENSION, value, np.float32)
    nearest = {"column": "v", "q": q, "k": 10, "nprobes": 4}
    dataset = lance_spark.open_dataset(str(path))
    result = dataset.to_table(["id"], nearest=nearest)
    if "IVF_SQ" in [described.index_type for described in dataset.describe_indices()]:
        check_equal(path, nearest)
    else:
        assert result.num_rows == (0 if np.isnan(value) else 10)
        assert np.isinf(result["_distance"].to_numpy()).all()
    check_equal(path, {**nearest, "use_index": False})


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "arguments",
    [
        {"filter": "id < 0"},
        {"filter": "false"},
        {"filter": "id = 17"},
        {"filter": "number > 8 OR id IS NULL"},
        {"filter": "v IS NOT NULL"},
        {"filter": "_rowid < 30"},
        {"filter": "number = 3", "limit": 3},
        {"limit": 3},
        {"limit": 13},
    ],
    ids=str,
)
def test_filters(path: Path, arguments: dict[str, Any]) -> None:
    for prefilter in (True, False):
        for k in ({"k": 40}, {}):
            nearest = {"column": "v", "q": QUERY, "nprobes": 4, "ef": 700, **k}
            check_equal(path, nearest, prefilter=prefilter, **arguments)


def test_columns_of_nothing(path: Path) -> None:
    nearest = {"column": "v", "q": QUERY, "k": 7, "nprobes": 4}
    for columns in ([], ["_distance"], ["_rowid"], ["number", "_rowaddr"]):
        tables = [
            client(str(path)).to_table(columns=columns, nearest=nearest)
            for client in (lance_spark.open_dataset, lance.dataset)
        ]
        assert tables[0].schema.equals(tables[1].schema)
        assert tables[0].num_rows == tables[1].num_rows == 7


BUILT = ["IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_RQ", "IVF_HNSW_FLAT"]
CLIENTS = {"ours": lance_spark.open_dataset, "pylance": lance.dataset}


@pytest.fixture(params=CLIENTS)
def builder(request: pytest.FixtureRequest) -> Any:
    return CLIENTS[request.param]


def test_a_column_of_nulls(tmp_path: Path, builder: Any) -> None:
    mask = np.ones(300, np.bool_)
    lance.write_dataset(table(vectors(300), mask=mask), tmp_path)
    if builder is lance_spark.open_dataset:
        # pylance has nothing to train centroids with.
        index(tmp_path, "IVF_FLAT", builder)
    assert check(tmp_path).num_rows == 0
    lance.write_dataset(table(vectors(50), 300), tmp_path, mode="append")
    assert check(tmp_path).num_rows == 20
    lance_spark.open_dataset(tmp_path).optimize_indices()
    assert check(tmp_path).num_rows == 20


def test_an_empty_table(tmp_path: Path, builder: Any) -> None:
    lance.write_dataset(table(vectors(0)), tmp_path)
    index(tmp_path, "IVF_FLAT", builder)
    lance_spark.open_dataset(tmp_path).validate()
    assert check(tmp_path).num_rows == 0
    lance.write_dataset(table(vectors(30)), tmp_path, mode="append")
    assert check(tmp_path).num_rows == 20


@pytest.mark.sample(5)
@pytest.mark.parametrize("index_type", BUILT)
def test_empty_partitions(tmp_path: Path, index_type: str, builder: Any) -> None:
    """One centroid is far from all vectors; later, all rows of a partition are deleted."""
    matrix = vectors()
    far = np.full((1, DIMENSION), 50, np.float32)
    lance.write_dataset(table(matrix), tmp_path, max_rows_per_file=250)
    centroids = np.concatenate([matrix[:1], far, matrix[1:3]])
    index(tmp_path, index_type, builder, ivf_centroids=centroids)
    check(tmp_path)
    check(tmp_path, q=far[0])
    nearest = {"column": "v", "q": QUERY, "k": ROWS, "nprobes": 1, "ef": 2_000}
    partition = lance.dataset(tmp_path).to_table(columns=["id"], nearest=nearest)["id"]
    assert 0 < len(partition) < ROWS
    lance.dataset(tmp_path).delete(f"id IN ({', '.join(map(str, partition.to_pylist()))})")
    check(tmp_path)
    check_equal(tmp_path, {**nearest, "k": 10, "refine_factor": 60})
    lance_spark.open_dataset(tmp_path).compact_files()
    check(tmp_path)
    lance_spark.open_dataset(tmp_path).optimize_indices(num_indices_to_merge=5)
    check(tmp_path)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("index_type", "stable"), cells(["IVF_FLAT", "IVF_SQ", "IVF_HNSW_FLAT"], [False, True])
)
def test_fragments_of_one_row(tmp_path: Path, index_type: str, stable: bool, builder: Any) -> None:
    lance.write_dataset(
        table(vectors(90)), tmp_path, max_rows_per_file=1, enable_stable_row_ids=stable
    )
    index(tmp_path, index_type, builder)
    lance.dataset(tmp_path).delete("id % 7 = 3")
    check(tmp_path)
    lance_spark.open_dataset(tmp_path).compact_files(target_rows_per_fragment=20)
    check(tmp_path)


@pytest.mark.parametrize("stable", [False, True])
def test_fragments_that_were_removed(tmp_path: Path, stable: bool, builder: Any) -> None:
    """A segment whose fragments are all gone has no rows; another segment has the rest."""
    options = {"max_rows_per_file": 200, "enable_stable_row_ids": stable}
    lance.write_dataset(table(vectors(400)), tmp_path, **options)
    index(tmp_path, "IVF_FLAT", builder)
    lance.write_dataset(table(vectors(200, 1), 400), tmp_path, mode="append")
    lance.dataset(tmp_path).optimize.optimize_indices(num_indices_to_merge=0)
    lance.dataset(tmp_path).delete("id < 400")
    assert check(tmp_path)["id"].to_numpy().min() >= 400
    lance.write_dataset(table(vectors(200, 2), 600), tmp_path, mode="append")
    check(tmp_path)
    lance_spark.open_dataset(tmp_path).optimize_indices(num_indices_to_merge=9)
    check(tmp_path)
    lance.dataset(tmp_path).delete("true")
    assert check(tmp_path).num_rows == 0


def test_a_column_of_the_same_name(tmp_path: Path, builder: Any) -> None:
    """The index of a dropped column is not that of another column of its name."""
    lance.write_dataset(table(vectors()), tmp_path)
    index(tmp_path, "IVF_FLAT", builder)
    lance.dataset(tmp_path).drop_columns(["v"])
    old = lance.dataset(tmp_path).version - 1
    others = pa.table({"id": range(ROWS), "v": vector_list(vectors(seed=5))})
    lance.dataset(tmp_path).merge(others, "id")
    result = check(tmp_path)
    distances = ((vectors(seed=5) - QUERY) ** 2).sum(axis=1)
    assert set(result["id"].to_pylist()) == set(distances.argsort()[:20].tolist())
    index(tmp_path, "IVF_FLAT", builder, name="other")
    check(tmp_path)
    nearest = {"column": "v", "q": QUERY, "k": 20, **EXACT}
    tables = [
        client(tmp_path, version=old).to_table(columns=["id", "_distance"], nearest=nearest)
        for client in CLIENTS.values()
    ]
    assert tables[0]["id"].equals(tables[1]["id"])
    assert not tables[0]["id"].equals(result["id"])


def test_two_indexes_of_a_column(tmp_path: Path, builder: Any) -> None:
    lance.write_dataset(table(vectors()), tmp_path)
    index(tmp_path, "IVF_SQ", builder, name="cosine", metric="cosine")
    index(tmp_path, "IVF_FLAT", builder, name="l2")
    for metric in ("l2", "cosine", "dot"):
        check(tmp_path, metric=metric)
    lance.dataset(tmp_path).drop_index("cosine")
    for metric in ("l2", "cosine"):
        check(tmp_path, metric=metric)


NAMES = ["with space", "UPPER", "a-b", "ünicode", "select", "x'y"]


@pytest.mark.parametrize("name", NAMES)
def test_names(tmp_path: Path, name: str, builder: Any) -> None:
    lance.write_dataset(table(vectors(300), column=name), tmp_path)
    index(tmp_path, "IVF_FLAT", builder, column=name)
    check(tmp_path, column=name)


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_nested_columns(tmp_path: Path, version: str, builder: Any) -> None:
    column = vector_list(vectors())
    nulls = np.arange(ROWS) % 9 == 4 if version == "2.1" else np.zeros(ROWS, np.bool_)
    inner = pa.StructArray.from_arrays([column], ["v"], mask=pa.array(nulls))
    outer = pa.StructArray.from_arrays([inner, pa.array(range(ROWS))], ["inner", "n"])
    data = pa.table({"id": range(ROWS), "st": outer})
    lance.write_dataset(data, tmp_path, data_storage_version=version)
    index(tmp_path, "IVF_FLAT", builder, column="st.inner.v")
    result = check(tmp_path, column="st.inner.v")
    assert not nulls[result["id"].to_numpy()].any()
    lance.write_dataset(data.slice(0, 40), tmp_path, mode="append")
    check(tmp_path, column="st.inner.v", filter="st.n > 20", prefilter=True)


def test_multivectors_with_empty_lists(tmp_path: Path, builder: Any) -> None:
    rng = np.random.default_rng(2)
    lists = [
        None if place % 11 == 0 else rng.normal(size=(place % 4, DIMENSION)).tolist()
        for place in range(400)
    ]
    column = pa.array(lists, pa.list_(pa.list_(pa.float32(), DIMENSION)))
    lance.write_dataset(pa.table({"id": range(400), "v": column}), tmp_path, max_rows_per_file=150)
    index(tmp_path, "IVF_FLAT", builder, metric="cosine")
    for q in (QUERY, vectors(3, seed=8)):
        check_equal(tmp_path, {"column": "v", "q": q, "k": 9, "metric": "cosine", "nprobes": 4})
    lance.dataset(tmp_path).delete("id % 5 = 2")
    check_equal(tmp_path, {"column": "v", "q": QUERY, "k": 9, "metric": "cosine", "nprobes": 4})


def test_old_versions_and_tags(tmp_path: Path, builder: Any) -> None:
    """Each version is searched by its own indexes and rows."""
    lance.write_dataset(table(vectors(300)), tmp_path)
    index(tmp_path, "IVF_FLAT", builder)
    lance.write_dataset(table(vectors(200, 1), 300), tmp_path, mode="append")
    lance.dataset(tmp_path).delete("id % 3 = 1")
    lance_spark.open_dataset(tmp_path).compact_files()
    lance.dataset(tmp_path).optimize.optimize_indices()
    lance.dataset(tmp_path).drop_index("v_idx")
    nearest = {"column": "v", "q": QUERY, "k": 30, **EXACT}
    for version in range(1, lance.dataset(tmp_path).version + 1):
        tables = [
            client(tmp_path, version=version).to_table(columns=["id"], nearest=options)
            for client in CLIENTS.values()
            for options in (nearest, {**nearest, "use_index": False})
        ]
        assert all(result["id"].equals(tables[0]["id"]) for result in tables), version


def test_names_of_a_search_are_not_free(tmp_path: Path) -> None:
    lance.write_dataset(table(vectors(30), column="_distance"), tmp_path)
    with pytest.raises(InvalidInputError, match="_distance"):
        lance_spark.open_dataset(tmp_path).to_table(nearest={"column": "_distance", "q": QUERY})


VALUES: dict[str, Vectors] = {
    "equal": np.ones((300, DIMENSION), np.float32),
    "one item": vectors(2_400).reshape(-1, 1)[:300],
    "seven items": vectors()[:300, :7].copy(),
    "a thousand items": np.resize(vectors(37_500).reshape(-1), (300, 1_000)),
    "half of them zero": vectors(300) * (np.arange(300) % 2)[:, None].astype(np.float32),
    # pylance adds the vectors of a partition as float16, which must not overflow.
    "float16": (vectors(300) * 200).astype(np.float16),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("name", VALUES)
def test_values(tmp_path: Path, name: str, metric: str, builder: Any) -> None:
    matrix = VALUES[name]
    column = vector_list(matrix)
    lance.write_dataset(pa.table({"id": range(len(matrix)), "v": column}), tmp_path)
    index(tmp_path, "IVF_FLAT", builder, metric=metric)
    wide = matrix.astype(np.float64)
    scale = float(np.abs(wide).max() ** 2 * matrix.shape[1]) if metric != "cosine" else 1.0
    if metric == "cosine" and matrix.dtype == np.float16:
        # The index has vectors of length 1 of the same type; pylance rounds the query, too.
        scale = 200.0
    for q in (matrix[7].astype(np.float32), np.zeros(matrix.shape[1], np.float32)):
        nearest = {"column": "v", "q": q, "k": 10, "nprobes": 4, "metric": metric}
        for use_index in (True, False):
            result = check_equal(
                tmp_path, {**nearest, "use_index": use_index}, absolute=1e-6 * max(scale, 1)
            )
            assert len(result) == (0 if metric == "cosine" and not q.any() else 10)
