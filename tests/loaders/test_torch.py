"""Loaders of torch: all rows once, in shards, shuffled, resumed, in forked and spawned workers."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, UnsupportedTypeError

torch = pytest.importorskip("torch")

from lance_spark.loaders.torch import LanceDataset, SafeLanceDataset, get_safe_loader  # noqa: E402

ROWS = 1_000


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> lance_spark.Dataset:
    path = tmp_path_factory.mktemp("torch") / "t.lance"
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array([float(i) for i in range(2 * ROWS)], pa.float32()), 2
    )
    rows = pa.table({"id": pa.array(range(ROWS)), "v": vectors, "s": [str(i) for i in range(ROWS)]})
    return lance_spark.write_dataset(rows, path, max_rows_per_file=130).delete("id % 10 = 3")


def expected() -> list[int]:
    return [i for i in range(ROWS) if i % 10 != 3]


def ids(loader: Any) -> list[int]:
    return [int(number) for batch in loader for number in batch]


def rows_of(dataset: lance_spark.Dataset, **options: Any) -> LanceDataset:
    return LanceDataset(dataset, 64, columns=["id"], **options)


def test_batches_have_the_rows_in_order(dataset: lance_spark.Dataset) -> None:
    loaded = rows_of(dataset)
    assert ids(loaded) == expected()
    sizes = [len(batch) for batch in loaded]
    assert set(sizes[:-1]) == {64}
    assert sizes[-1] == 900 % 64
    assert sum(len(batch) for batch in rows_of(dataset, drop_last=True)) == 900 // 64 * 64


def test_columns_become_tensors(dataset: lance_spark.Dataset) -> None:
    batch = next(iter(LanceDataset(dataset, 10, columns=["id", "v"], with_row_id=True)))
    assert {name: (value.dtype, tuple(value.shape)) for name, value in batch.items()} == {
        "id": (torch.int64, (10,)),
        "v": (torch.float32, (10, 2)),
        "_rowid": (torch.int64, (10,)),
    }
    assert batch["v"][4].tolist() == [10.0, 11.0]
    with pytest.raises(UnsupportedTypeError, match="'s'"):
        next(iter(LanceDataset(dataset, 10)))
    (plain,) = LanceDataset(dataset, 10, filter="id = 5", to_tensor_fn=None)
    assert plain.to_pylist() == [{"id": 5, "v": [10.0, 11.0], "s": "5"}]


def test_nulls(tmp_path: Path) -> None:
    rows = pa.table({"f": [1.0, None], "i": [1, None], "b": [True, False]})
    made = lance_spark.write_dataset(rows, tmp_path / "t")
    assert torch.isnan(next(iter(LanceDataset(made, 5, columns=["f"])))).tolist() == [False, True]
    assert next(iter(LanceDataset(made, 5, columns=["b"]))).tolist() == [True, False]
    with pytest.raises(InvalidInputError, match=r"'i'.*nulls"):
        next(iter(LanceDataset(made, 5, columns=["i"])))


@pytest.mark.parametrize("granularity", ["fragment", "batch"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_shards_share_the_rows(
    dataset: lance_spark.Dataset, granularity: str, shuffle: bool
) -> None:
    parts = [
        ids(
            rows_of(
                dataset,
                rank=rank,
                world_size=3,
                shard_granularity=granularity,
                shuffle=shuffle,
                shuffle_rows=256,
            )
        )
        for rank in range(3)
    ]
    assert all(parts)
    assert sorted(number for part in parts for number in part) == expected()


def test_epochs_have_other_orders(dataset: lance_spark.Dataset) -> None:
    loaded = rows_of(dataset, shuffle=True, seed=7)
    first = ids(loaded)
    assert first != expected()
    assert sorted(first) == expected()
    loaded.set_epoch(1)
    assert ids(loaded) != first
    loaded.set_epoch(0)
    assert ids(loaded) == first
    assert ids(rows_of(dataset, shuffle=True, seed=8)) != first


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": True, "shuffle_rows": 200},
        {"filter": "id % 3 = 0"},
        {"shuffle": True, "shard_granularity": "batch", "rank": 1, "world_size": 2},
        {"rank": 1, "world_size": 2, "drop_last": True},
    ],
)
def test_a_state_continues(dataset: lance_spark.Dataset, options: dict[str, Any]) -> None:
    whole = [batch.tolist() for batch in rows_of(dataset, **options)]
    for done in range(len(whole) + 1):
        loaded = rows_of(dataset, **options)
        iterator = iter(loaded)
        before = [next(iterator).tolist() for _ in range(done)]
        state = pickle.loads(pickle.dumps(copy.deepcopy(loaded.state_dict())))
        resumed = rows_of(dataset, **options)
        resumed.load_state_dict(state)
        assert before + [batch.tolist() for batch in resumed] == whole


def test_a_state_of_another_version_is_refused(dataset: lance_spark.Dataset) -> None:
    state = {**rows_of(dataset).state_dict(), "version": 77}
    with pytest.raises(InvalidInputError, match="version 77"):
        rows_of(dataset).load_state_dict(state)


def test_an_iteration_begins_with_the_first_row(dataset: lance_spark.Dataset) -> None:
    loaded = rows_of(dataset)
    next(iter(loaded))
    assert ids(loaded) == expected()
    state = loaded.state_dict()
    iterator = iter(loaded)
    first = next(iterator).tolist()
    loaded.load_state_dict(loaded.state_dict())
    assert first + ids(loaded) == expected()
    assert ids(loaded) == expected()
    loaded.load_state_dict(state)
    assert ids(loaded) == expected()


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_that_live_on(dataset: lance_spark.Dataset, context: str) -> None:
    rows = rows_of(dataset, shuffle=True)
    loader = torch.utils.data.DataLoader(
        rows,
        batch_size=None,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context=context,
    )
    first = ids(loader)
    next(iter(loader))
    assert ids(loader) == first
    rows.set_epoch(1)
    second = ids(loader)
    assert sorted(second) == sorted(first) == expected()
    assert second != first
    alone = rows_of(dataset, shuffle=True)
    alone.set_epoch(1)
    assert ids(alone) == second


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_belong_to_the_rank_of_their_parent(
    dataset: lance_spark.Dataset, context: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(rank: int) -> list[int]:
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
        return ids(
            torch.utils.data.DataLoader(
                rows_of(dataset),
                batch_size=None,
                num_workers=1,
                multiprocessing_context=context,
            )
        )

    assert sorted(loaded(0) + loaded(1)) == expected()
    # Other copies belong to the process that has them.
    copied = pickle.loads(pickle.dumps(rows_of(dataset)))
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    assert ids(copied) == loaded(0)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers(dataset: lance_spark.Dataset, context: str) -> None:
    # The parent has files open that a fork must not use.
    dataset.take([1, 500], ["id"])
    loader = torch.utils.data.DataLoader(
        rows_of(dataset), batch_size=None, num_workers=2, multiprocessing_context=context
    )
    assert sorted(ids(loader)) == expected()
    loader = torch.utils.data.DataLoader(
        SafeLanceDataset(dataset, columns=["id"]),
        batch_size=100,
        shuffle=True,
        num_workers=2,
        multiprocessing_context=context,
    )
    assert sorted(int(i) for batch in loader for i in batch["id"]) == expected()


def test_rows_by_position(dataset: lance_spark.Dataset) -> None:
    rows = SafeLanceDataset(dataset.uri, columns=["id", "s"])
    assert len(rows) == 900
    assert rows[3] == {"id": 4, "s": "4"}
    assert rows.__getitems__([5, 0, 5]) == [rows[5], rows[0], rows[5]]
    loader = get_safe_loader(rows, batch_size=90, num_workers=0)
    assert len(list(loader)) == 10


def test_arguments_are_checked(dataset: lance_spark.Dataset) -> None:
    for options in (
        {"rank": 1},
        {"rank": 3, "world_size": 2},
        {"shard_granularity": "row"},
        {"filter": "nothing = 1"},
        {"dataset_options": {"version": 1}},
    ):
        with pytest.raises(InvalidInputError):
            rows_of(dataset, **options)
    with pytest.raises(InvalidInputError, match="batch_size"):
        LanceDataset(dataset, 0)


@pytest.mark.parametrize("shuffle", [False, True])
def test_extension_types(tmp_path: Path, shuffle: bool) -> None:
    lance_arrow = pytest.importorskip("lance.arrow")
    storage = pa.array([[float(i)] * 6 for i in range(40)], pa.list_(pa.float32(), 6))
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [2, 3]), storage)
    halves = lance_arrow.bfloat16_array([float(i) for i in range(40)])
    rows = pa.table({"id": list(range(40)), "t": tensors, "h": halves})
    made = lance_spark.write_dataset(rows, tmp_path / "t", max_rows_per_file=15)
    for batch in LanceDataset(made, 16, shuffle=shuffle):
        assert batch["t"].shape == (len(batch["id"]), 2, 3)
        assert batch["h"].dtype == torch.bfloat16
        assert batch["t"][:, 1, 2].tolist() == batch["h"].tolist() == batch["id"].tolist()


def test_matrices(tmp_path: Path) -> None:
    values = [[[float(i), 1.0], [2.0, float(-i)]] for i in range(40)]
    matrices = pa.array(values, pa.list_(pa.list_(pa.float32(), 2), 2))
    made = lance_spark.write_dataset(
        pa.table({"id": list(range(40)), "m": matrices}), tmp_path / "t", max_rows_per_file=15
    )
    for batch in LanceDataset(made, 4, shuffle=True, shuffle_rows=12):
        assert batch["m"].tolist() == [values[i] for i in batch["id"].tolist()]
