"""Exact vector search: the rows and distances of pylance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError
from tests.interop.vectors.answers import check_equal, rows, vector_list

DIMENSION = 12
METRICS = ("l2", "cosine", "dot")
#: Columns of the table, and types of their items.
TYPES = {"v16": np.float16, "v32": np.float32, "v64": np.float64}
#: Arguments of a search.
SEARCHES: list[dict[str, Any]] = [
    {},
    {"filter": "number = 3"},
    {"filter": "number = 3", "prefilter": True},
    {"filter": "id < 40", "prefilter": True},
    {"limit": 3},
    {"fast_search": True},
]


def vectors(rng: np.random.Generator, dtype: Any) -> pa.Array:
    """Return vectors with nulls, NaN, infinity, zeros and repeated ones."""
    values = rng.normal(size=(900, DIMENSION))
    values[100:130] = values[7]
    values[200:204] = 0
    values[300:303] = np.nan
    values[310, 2] = np.nan
    values[320, 1] = np.inf
    mask = np.zeros(len(values), np.bool_)
    mask[[5, 400, 899]] = True
    return vector_list(values.astype(dtype), mask)


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(1)
    path = tmp_path_factory.mktemp("exact") / "t.lance"
    columns = {name: vectors(rng, dtype) for name, dtype in TYPES.items()}
    bits = vector_list(rng.integers(0, 256, (900, DIMENSION)).astype(np.uint8))
    nested = pa.StructArray.from_arrays([columns["v32"]], ["v"])
    lists = [
        None if place % 9 == 0 else rng.normal(size=(place % 4, DIMENSION)).tolist()
        for place in range(900)
    ]
    lists[17] = [[0.0] * DIMENSION, [1.0] * DIMENSION]
    lists[18] = [[1.0] * DIMENSION, [float("nan")] * DIMENSION]
    multi = pa.array(lists, pa.list_(pa.list_(pa.float32(), DIMENSION)))
    table = pa.table(
        {
            "id": range(900),
            "number": rng.integers(0, 10, 900),
            **columns,
            "bits": bits,
            "st": nested,
            "multi": multi,
        }
    )
    dataset = lance.write_dataset(
        table, str(path), max_rows_per_file=250, enable_stable_row_ids=request.param
    )
    dataset.create_scalar_index("number", "BTREE")
    dataset.delete("id % 11 = 4")
    # Moves rows: with stable row ids, their order is not that of the addresses.
    dataset.update({"number": "3"}, where="id in (20, 110, 111, 640)")
    return path


def query(seed: int, column: str) -> Any:
    rng = np.random.default_rng(seed)
    if column == "bits":
        return rng.integers(0, 256, DIMENSION).astype(np.uint8)
    return rng.normal(size=DIMENSION).astype(np.float32)


@pytest.mark.sample(8)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("column", [*TYPES, "st.v", "multi"])
def test_metrics_and_types(path: Path, column: str, metric: str) -> None:
    for seed, arguments in enumerate(SEARCHES):
        nearest = {"column": column, "q": query(seed, column), "k": 10, "metric": metric}
        check_equal(path, nearest, **arguments)
    check_equal(path, {**nearest, "k": 2000})
    check_equal(path, {**nearest, "k": 40, "distance_range": (1.5, 9.0)})
    check_equal(path, {**nearest, "k": 40, "distance_range": (None, 9.0)})


def test_bits(path: Path) -> None:
    for seed, arguments in enumerate(SEARCHES):
        for metric in (None, "hamming"):
            nearest = {"column": "bits", "q": query(seed, "bits"), "k": 25, "metric": metric}
            check_equal(path, nearest, **arguments)


@pytest.mark.parametrize("metric", METRICS)
def test_repeated_vectors_are_in_the_order_of_row_ids(path: Path, metric: str) -> None:
    result = lance.dataset(str(path)).to_table(columns=["v32"], filter="id = 7")["v32"]
    q = np.array(result[0].as_py(), np.float32)
    table = check_equal(path, {"column": "v32", "q": q, "k": 25, "metric": metric})
    if metric != "dot":
        ids = table["_rowid"].to_pylist()
        assert ids == sorted(ids)


@pytest.mark.parametrize("metric", METRICS)
def test_batches_of_queries(path: Path, metric: str) -> None:
    q = np.stack([query(seed, "v32") for seed in range(7)])
    for arguments in SEARCHES:
        check_equal(path, {"column": "v32", "q": q, "k": 6, "metric": metric}, **arguments)
    for column in ("multi",):
        check_equal(path, {"column": column, "q": q[:3], "k": 9, "metric": metric})


@pytest.mark.parametrize("q", [[np.nan] * DIMENSION, [np.inf] * DIMENSION, [0.0] * DIMENSION])
@pytest.mark.parametrize("metric", METRICS)
def test_queries_without_a_direction(path: Path, metric: str, q: list[float]) -> None:
    check_equal(path, {"column": "v32", "q": q, "k": 5, "metric": metric})


@pytest.mark.parametrize(
    "columns",
    [None, ["id"], ["_distance", "id"], [], ["id", "_distance", "number"], ["_distance"]],
    ids=str,
)
@pytest.mark.parametrize("is_batch", [False, True])
def test_columns(path: Path, columns: list[str] | None, is_batch: bool) -> None:
    q = np.stack([query(1, "v32"), query(2, "v32")]) if is_batch else query(1, "v32")
    arguments: dict[str, Any] = {
        "columns": columns,
        "nearest": {"column": "v32", "q": q, "k": 3},
        "with_row_address": True,
    }
    expected = lance.dataset(str(path)).to_table(**arguments)
    dataset = lance_spark.open_dataset(str(path))
    own = dataset.to_table(**arguments)
    assert own.schema.names == expected.schema.names
    for name in ("id", "number", "_rowaddr", "query_index"):
        if name in own.schema.names:
            assert own[name].to_pylist() == expected[name].to_pylist()
    batches = list(dataset.to_batches(batch_size=2, **arguments))
    assert pa.Table.from_batches(batches).num_rows == own.num_rows
    assert all(batch.num_rows <= 2 for batch in batches)


def test_forms_of_a_query(path: Path) -> None:
    dataset = lance_spark.open_dataset(str(path))
    q = query(3, "v32")
    forms = [
        q,
        q.tolist(),
        tuple(q.tolist()),
        q.astype(np.float64),
        pa.array(q),
        pa.chunked_array([pa.array(q)]),
        vector_list(q[None])[0],
    ]
    tables = [dataset.to_table(["id"], nearest={"column": "v32", "q": form}) for form in forms]
    assert all(table.equals(tables[0]) for table in tables)
    batches = [q[None], [q.tolist()], [q], [pa.array(q)], vector_list(q[None])]
    for form in batches:
        table = dataset.to_table(["id"], nearest={"column": "v32", "q": form})
        assert table["id"].equals(tables[0]["id"])
        assert table["query_index"].to_pylist() == [0] * 10
    precise = q.astype(np.float64) + 1e-9
    check_equal(path, {"column": "v64", "q": pa.array(precise), "k": 3})


def test_bytes_and_short_floats_are_measured(tmp_path: Path) -> None:
    """pylance stores them, but does not search them, nor uint8 by other metrics than hamming."""
    rng = np.random.default_rng(5)
    values = rng.integers(-100, 100, (300, 8)).astype(np.int8)
    shorts = (rng.normal(size=(300, 8)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    items = pa.array([item.tobytes() for item in shorts.reshape(-1)], pa.binary(2))
    field = pa.field(
        "b",
        pa.list_(
            pa.field("item", items.type, metadata={"ARROW:extension:name": "lance.bfloat16"}), 8
        ),
    )
    table = pa.table(
        [
            pa.array(range(300)),
            vector_list(values),
            vector_list(values.astype(np.uint8)),
            pa.FixedSizeListArray.from_arrays(items, type=field.type),
        ],
        schema=pa.schema(
            [
                ("id", pa.int64()),
                ("v", pa.list_(pa.int8(), 8)),
                ("u", pa.list_(pa.uint8(), 8)),
                field,
            ]
        ),
    )
    lance_spark.write_dataset(table, tmp_path / "t.lance")
    dataset = lance_spark.open_dataset(tmp_path / "t.lance")
    floats = (shorts.astype(np.uint32) << 16).view(np.float32)
    for column, stored in (("v", values), ("u", values.astype(np.uint8)), ("b", floats)):
        numbers = stored.astype(np.float64)
        q = numbers[4] + 0.25
        nearest = {"column": column, "q": q, "k": 5, "metric": "l2"}
        result = dataset.to_table(["id"], nearest=nearest)
        distances = ((numbers - q.astype(np.float32)) ** 2).sum(axis=1)
        order = np.lexsort((np.arange(300), distances.astype(np.float32)))[:5]
        assert result["id"].to_pylist() == order.tolist()
        np.testing.assert_allclose(result["_distance"], distances[order], rtol=1e-6)


INVALID: list[dict[str, Any]] = [
    {"q": [1.0] * 3},
    {"q": "text"},
    {"q": None},
    {"q": [1.0, None] * 6},
    {"q": [[1.0] * DIMENSION, [1.0]]},
    {"column": "missing"},
    {"column": "id"},
    {"column": None},
    {"k": 0},
    {"k": "3"},
    {"metric": "manhattan"},
    {"metric": "hamming"},
    {"metric": "l2", "distance_type": "dot"},
    {"nprobes": 0},
    {"minimum_nprobes": 5, "maximum_nprobes": 4},
    {"refine_factor": 0},
    {"ef": 0},
    {"approx_mode": "best"},
    {"search_effort": 1.5},
    {"distance_range": (1.0,)},
    {"distance_range": ("a", None)},
    {"use_index": 1},
    {"probes": 3},
]


@pytest.mark.parametrize("change", INVALID, ids=str)
def test_queries_that_are_not_valid(path: Path, change: dict[str, Any]) -> None:
    nearest = {"column": "v32", "q": [0.5] * DIMENSION, **change}
    with pytest.raises(InvalidInputError):
        lance_spark.open_dataset(str(path)).to_table(nearest=nearest)


def test_other_arguments_that_are_not_valid(path: Path, tmp_path: Path) -> None:
    dataset = lance_spark.open_dataset(str(path))
    nearest = {"column": "v32", "q": [0.5] * DIMENSION}
    for arguments in (
        {"nearest": nearest, "full_text_query": "a"},
        {"nearest": [nearest]},
        {"nearest": nearest, "columns": ["_distance", "_distance"]},
        {"nearest": nearest, "limit": -1},
        {"nearest": {**nearest, "column": "bits", "q": [0.5] * DIMENSION}},
    ):
        with pytest.raises(InvalidInputError):
            dataset.to_table(**arguments)
    table = rows(np.random.default_rng(0), 0, 5).append_column("_distance", pa.array([0.5] * 5))
    lance_spark.write_dataset(table, tmp_path / "t.lance")
    with pytest.raises(InvalidInputError, match="_distance"):
        lance_spark.open_dataset(tmp_path / "t.lance").to_table(
            nearest={"column": "v", "q": [0.5] * 16}
        )


def test_an_empty_table(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(rows(np.random.default_rng(0), 0, 0), str(path))
    check_equal(path, {"column": "v", "q": [0.5] * 16})
