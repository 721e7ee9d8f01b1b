"""`merge_insert` and `merge` change the same rows as in pylance, or refuse."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark import BasePath, Dataset, open_dataset
from lance_spark.dataset import merge as merging
from lance_spark.errors import (
    AmbiguousMergeError,
    CommitConflictError,
    InvalidInputError,
    LanceError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    UnsupportedTypeError,
)
from lance_spark.mutations.rewrite.writers import RowRewriter
from lance_spark.mutations.rows import merge as key_matching
from lance_spark.mutations.rows.merge import KeyMatch, match_keys

NAN = float("nan")
ROWS = pa.table(
    {
        "id": pa.array([1, 2, None, 4, 5, 6], pa.int64()),
        "v": ["a", "b", "c", "d", None, "f"],
        "w": [1.0, 2.0, 3.0, NAN, -0.0, None],
    }
)


def ids(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int64())


SOURCE = pa.table({"id": ids(2, None, 9, 4), "v": ["B", "N", "X", None], "w": [0.0, 9.0, 2.5, 7.0]})
Merge = Callable[[Any], Any]


def upsert(merge: Any) -> Any:
    return merge.when_matched_update_all().when_not_matched_insert_all()


#: Name, columns of the key, clauses, source.
CASES: list[tuple[str, Any, Merge, pa.Table]] = [
    ("upsert", "id", upsert, SOURCE),
    ("update", "id", lambda m: m.when_matched_update_all(), SOURCE),
    ("insert", "id", lambda m: m.when_not_matched_insert_all(), SOURCE),
    ("delete", "id", lambda m: m.when_matched_delete(), SOURCE),
    ("other order", "id", upsert, SOURCE.select(["w", "id", "v"])),
    ("some columns", "id", upsert, SOURCE.select(["id", "v"])),
    ("only keys", "id", lambda m: m.when_matched_delete(), SOURCE.select(["id"])),
    ("new rows of some columns", "id", lambda m: m.when_not_matched_insert_all(),
     SOURCE.select(["id", "w"])),
    ("no row matches", "id", lambda m: m.when_matched_update_all(), SOURCE.slice(2, 1)),
    ("empty source", "id", upsert, SOURCE.slice(0, 0)),
    ("empty source deletes all", "id", lambda m: m.when_not_matched_by_source_delete(),
     SOURCE.slice(0, 0)),
    ("by source", "id",
     lambda m: m.when_not_matched_by_source_delete().when_not_matched_insert_all(), SOURCE),
    ("by source, condition", "id",
     lambda m: m.when_matched_update_all().when_not_matched_by_source_delete("w >= 1"), SOURCE),
    ("replace", "id", lambda m: upsert(m).when_not_matched_by_source_delete(), SOURCE),
    ("condition", "id",
     lambda m: m.when_matched_update_all("source.w > target.w").when_not_matched_insert_all(),
     SOURCE),
    ("condition on one side", "id", lambda m: m.when_matched_update_all("source.v IS NULL"),
     SOURCE),
    ("condition on the other side", "id", lambda m: m.when_matched_update_all("target.w > 1"),
     SOURCE),
    ("the last clause counts", "id", lambda m: upsert(m).when_matched_delete(), SOURCE),
    ("two columns", ["id", "v"], upsert, pa.table({"id": ids(1, 1, 5), "v": ["a", "b", None],
                                                   "w": [7.0, 8.0, 9.0]})),
    ("strings", "v", upsert, pa.table({"id": ids(10, 11), "v": ["a", "z"], "w": [7.0, 8.0]})),
    ("floats", "w", upsert, pa.table({"id": ids(10, 11, 12), "v": ["a", "z", "y"],
                                      "w": [NAN, 0.0, 2.0]})),
    ("new keys twice", "id", lambda m: m.when_not_matched_insert_all(),
     pa.table({"id": ids(2, 2, 8, 8), "v": ["B", "X", "Y", "Z"], "w": [0.0, 0.0, 0.0, 0.0]})),
    ("fail without a match", "id",
     lambda m: m.when_matched_fail().when_not_matched_insert_all(), SOURCE.slice(2, 1)),
]  # fmt: skip


def written(path: Path, name: str, rows: pa.Table = ROWS, **options: Any) -> Any:
    root = str(path / name)
    dataset = lance.write_dataset(rows, root, max_rows_per_file=2, **options)
    if rows is ROWS:
        dataset.delete("id = 6")
    return dataset


def rows_of(table: pa.Table) -> list[str]:
    return sorted(str(row) for row in table.to_pylist())


@pytest.mark.sample(3)
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(
    ("name", "on", "clauses", "source"), CASES, ids=[case[0] for case in CASES]
)
def test_merge_insert(
    tmp_path: Path, name: str, on: Any, clauses: Merge, source: pa.Table, stable: bool
) -> None:
    theirs = written(tmp_path, "theirs", enable_stable_row_ids=stable)
    written(tmp_path, "ours", enable_stable_row_ids=stable)
    ours = open_dataset(tmp_path / "ours")
    expected = clauses(theirs.merge_insert(on)).execute(source)
    result = clauses(ours.merge_insert(on)).execute(source)
    dataset = result.pop("dataset")
    assert result == expected
    assert dataset.version == theirs.version
    assert rows_of(dataset.to_table()) == rows_of(theirs.to_table())
    read = lance.dataset(str(tmp_path / "ours"))
    read.validate()
    assert rows_of(read.to_table()) == rows_of(theirs.to_table())
    if stable:
        columns = ["id", "v", "w", "_rowid"]
        kept = [f"{row}" for row in theirs.to_table(columns).to_pylist() if row["_rowid"] < 6]
        rows = [f"{row}" for row in dataset.to_table(columns).to_pylist() if row["_rowid"] < 6]
        assert sorted(rows) == sorted(kept)


#: Both clients refuse these.
REFUSED: list[tuple[str, Any, Merge, pa.Table, type[LanceError]]] = [
    ("two sources", "id", upsert, pa.concat_tables([SOURCE, SOURCE]), AmbiguousMergeError),
    ("two sources to delete", "id", lambda m: m.when_matched_delete(),
     pa.concat_tables([SOURCE, SOURCE]), AmbiguousMergeError),
    ("fail", "id", lambda m: m.when_matched_fail().when_not_matched_insert_all(), SOURCE,
     InvalidInputError),
    ("no clause", "id", lambda m: m, SOURCE, InvalidInputError),
    ("only fail", "id", lambda m: m.when_matched_fail(), SOURCE, InvalidInputError),
    ("another column", "id", upsert, SOURCE.append_column("z", [["x"] * 4]), SchemaMismatchError),
    ("another type", "id", upsert, SOURCE.set_column(0, "id", ids(1, 2, 3, 4).cast(pa.int32())),
     SchemaMismatchError),
    ("no key", "id", upsert, SOURCE.select(["v", "w"]), SchemaMismatchError),
    ("unknown key", "q", upsert, SOURCE, InvalidInputError),
    ("condition without a side", "id", lambda m: m.when_matched_update_all("w > 1"), SOURCE,
     InvalidInputError),
    ("unknown column", "id", lambda m: m.when_matched_update_all("source.q > 1"), SOURCE,
     InvalidInputError),
    ("no primary key", None, upsert, SOURCE, InvalidInputError),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "on", "clauses", "source", "error"), REFUSED, ids=[case[0] for case in REFUSED]
)
def test_refused(
    tmp_path: Path, name: str, on: Any, clauses: Merge, source: pa.Table, error: type[LanceError]
) -> None:
    theirs = written(tmp_path, "t.lance")
    ours = open_dataset(tmp_path / "t.lance")
    if name != "only fail":
        with pytest.raises((OSError, ValueError)):
            clauses(theirs.merge_insert(on)).execute(source)
    with pytest.raises(error):
        clauses(ours.merge_insert(on)).execute(source)
    assert ours.latest_version == theirs.version


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("use_index", [True, False])
def test_random_merges(tmp_path: Path, seed: int, use_index: bool) -> None:
    """Also with an index, and with sources of more keys than are looked up in it."""
    rng = np.random.default_rng(seed)
    many = 20_000
    table = pa.table({"k": rng.permutation(many)[: many // 2], "s": rng.random(many // 2)})
    theirs = written(tmp_path, "theirs", table.slice(0, 400))
    written(tmp_path, "ours", table.slice(0, 400))
    if seed % 2:
        for name in ("theirs", "ours"):
            lance.dataset(str(tmp_path / name)).create_scalar_index("k", "BTREE")
    theirs, ours = lance.dataset(str(tmp_path / "theirs")), open_dataset(tmp_path / "ours")
    for _ in range(3):
        size = int(rng.choice([1, 50, 300, many - 10]))
        keys = rng.permutation(many)[:size]
        source = pa.table({"k": keys, "s": rng.random(size)})
        condition = "source.s > target.s" if rng.random() < 0.5 else None
        counts = []
        for dataset in (theirs, ours):
            merge = dataset.merge_insert("k").when_matched_update_all(condition)
            merge = merge.when_not_matched_insert_all().use_index(use_index)
            counts.append(merge.execute(source))
        ours = counts[1].pop("dataset")
        assert counts[0] == counts[1]
        order = [("k", "ascending"), ("s", "ascending")]
        assert ours.to_table().sort_by(order) == theirs.to_table().sort_by(order)


def test_keys_of_each_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge takes rows of the table only if they match, unless keys are compared as bytes."""
    taken = []
    monkeypatch.setattr(
        merging,
        "match_keys",
        lambda target, source: taken.append(len(target[0])) or match_keys(target, source),
    )
    for number, (dtype, values) in enumerate(KEY_VALUES.items()):
        keys = pa.array([*values, None], dtype)
        table = pa.table({"k": keys, "v": np.arange(len(keys))})
        theirs = written(tmp_path, f"{number}", table, data_storage_version="2.1")
        source = pa.table({"k": keys.take(pa.array([len(values), 0, 1])), "v": [-1, -2, -3]})
        result = upsert(open_dataset(theirs.uri).merge_insert("k")).execute(source)
        assert (result["num_updated_rows"], result["num_inserted_rows"]) == (2, 1)
        is_filtered = not (pa.types.is_floating(dtype) or dtype in UNFILTERED)
        assert taken.pop() == (2 if is_filtered else len(keys)), dtype
        read = result["dataset"].to_table()
        assert sorted(read["v"].to_pylist()) == [-3, -2, -1, *range(2, len(keys))]


def test_primary_key_and_inserted_keys(tmp_path: Path) -> None:
    key = pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"})
    schema = pa.schema([key, pa.field("v", pa.string())])
    written(tmp_path, "t", pa.table([[1, 2], ["a", "b"]], schema=schema))
    ours = open_dataset(tmp_path / "t")
    new = pa.table([[2, 3], ["B", "C"]], schema=schema)
    first = upsert(ours.merge_insert()).execute(new)
    assert first["num_inserted_rows"] == 1
    second = ours.merge_insert().when_not_matched_insert_all().conflict_retries(0)
    with pytest.raises(CommitConflictError):
        second.execute(pa.table([[3], ["other"]], schema=schema))
    retried = ours.merge_insert().when_not_matched_insert_all()
    assert retried.execute(new)["num_inserted_rows"] == 0
    late = ours.merge_insert().when_not_matched_insert_all()
    late.retry_timeout(datetime.timedelta(seconds=-1))
    with pytest.raises(CommitConflictError, match=r"the time for retries, .*, is over"):
        late.execute(new)


def test_options_of_the_builder(tmp_path: Path) -> None:
    written(tmp_path, "t", ROWS.slice(0, 2), data_storage_version="2.1")
    ours = open_dataset(tmp_path / "t")
    merge = upsert(ours.merge_insert("id")).data_storage_version("2.1").write_mode("rewrite_rows")
    merge = merge.commit_message("nightly").transaction_properties({"run": "7"})
    version = merge.execute(SOURCE.slice(0, 1).to_pandas())["dataset"].get_version()
    assert (version.message, version.transaction_properties["run"]) == ("nightly", "7")
    for refused in (
        lambda: merge.data_storage_version("2.2"),
        lambda: merge.write_mode("rewrite_columns"),
    ):
        with pytest.raises(UnsupportedFeatureError):
            refused()
    with pytest.raises(InvalidInputError, match="mode must be one of"):
        merge.write_mode("x")
    lance.write_dataset(pa.table({"s": pa.array([{"x": 1}])}), str(tmp_path / "s"))
    with pytest.raises(InvalidInputError, match="top-level column"):
        open_dataset(tmp_path / "s").merge_insert("s.x")


#: Seven distinct values of each type of a key, or fewer: of narrow and of wide spans.
KEY_VALUES: dict[pa.DataType, list[object]] = {
    pa.int64(): [0, 1, -1, 1 << 62, -(1 << 63), (1 << 63) - 1, 3],
    pa.int16(): [0, 1, -1, 300, -32768, 32767, 3],
    pa.int32(): [5, 6, 7, 8, 9, 10, 11],
    pa.uint64(): [0, 1, (1 << 64) - 1, 1 << 63, 5],
    pa.uint32(): [0, 1, (1 << 32) - 1, 1 << 31, 5],
    pa.float64(): [0.0, 1.5, NAN, -1.5, 1e300, float("inf")],
    pa.float32(): [0.0, 1.5, NAN, -1.5, float("-inf")],
    pa.bool_(): [True, False],
    pa.string(): ["", "a", "ab", "\0", "é", "a" * 40],
    pa.large_binary(): [b"", b"\0", b"\0\0", b"\xff"],
    pa.binary(3): [b"abc", b"\0\0\0", b"\xff\xff\xff"],
    pa.decimal128(20, 2): [Decimal(0), Decimal("-1.50"), Decimal(10**17)],
    pa.date32(): [datetime.date(1, 1, 1), datetime.date(2020, 1, 2), datetime.date(9999, 1, 1)],
    pa.timestamp("us"): [datetime.datetime(1970, 1, 1, 0, 0, second) for second in range(6)],
    pa.dictionary(pa.int8(), pa.string()): ["a", "b", "c"],
}

#: Types of keys, besides floats, by which a merge does not filter the table.
UNFILTERED = (pa.bool_(), pa.binary(3), pa.dictionary(pa.int8(), pa.string()))


@pytest.mark.parametrize("fewest", [0, key_matching._FEWEST_VALUES])
def test_keys_match_as_a_loop_over_pairs_says(fewest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one to three columns of each type, in chunks; the larger side may be either."""
    monkeypatch.setattr(key_matching, "_FEWEST_VALUES", fewest)
    rng = np.random.default_rng(3)
    dtypes = list(KEY_VALUES)
    for turn in range(120):
        chosen = [dtypes[turn % len(dtypes)], *rng.permutation(dtypes)][: rng.integers(1, 4)]
        sides = []
        for size in rng.integers(0, 30, 2):
            cuts = [0, *sorted(rng.integers(0, size + 1, 2).tolist()), size]
            columns = []
            for dtype in chosen:
                choice = [None, *KEY_VALUES[dtype]]
                values = [choice[place] for place in rng.integers(0, len(choice), size)]
                pairs = itertools.pairwise(cuts)
                chunks = [pa.array(values[start:stop], dtype) for start, stop in pairs]
                columns.append(pa.chunked_array(chunks[: None if size else turn % 2], dtype))
            sides.append(columns)
        match = match_keys(*sides)
        left, right = (
            [*zip(*([repr(v) for v in column.to_pylist()] for column in side), strict=True)]
            for side in sides
        )
        expected = [
            (i, j) for i, x in enumerate(left) for j, y in enumerate(right)
            if x == y and "None" not in x
        ]  # fmt: skip
        assert [*zip(match.target, match.source, strict=True)] == expected, (turn, chosen)
        assert [*match.unmatched] == [
            j for j in range(len(right)) if j not in {b for _, b in expected}
        ]


def test_nested_keys_match_as_equal_values() -> None:
    rng = np.random.default_rng(4)

    def values(size: int) -> list[object]:
        lists = [None, [], [None], [{"x": None, "y": [1.0]}], [None, {"x": "a", "y": [None, 2.0]}]]
        return [
            None
            if rng.random() < 0.1
            else {"a": lists[rng.integers(5)], "b": [int(rng.integers(2)), None], "c": [("k", 1)]}
            for _ in range(size)
        ]

    item = pa.struct({"x": pa.string(), "y": pa.large_list(pa.float64())})
    dtype = pa.struct(
        {"a": pa.list_(item), "b": pa.list_(pa.int8(), 2), "c": pa.map_("string", "int64")}
    )
    for _ in range(20):
        sides = [values(size) for size in rng.integers(0, 25, 2)]
        columns = [
            pa.chunked_array([pa.array(side[:7], dtype), pa.array([None, *side], dtype)[8:]])
            for side in sides
        ]
        assert_matching(*sides, match_keys(*([column] for column in columns)))


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (pa.null(), [None]),
        (pa.bool_(), [True, False]),
        (pa.uint64(), [1 << 63, 1]),
        (pa.float16(), [np.float16(0.5), np.float16(2)]),
        (pa.decimal128(5, 2), [Decimal("1.50"), Decimal(2)]),
        (pa.decimal256(50, 2), [Decimal("1.50"), Decimal(2)]),
        (pa.date32(), [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]),
        (pa.timestamp("us", "UTC"), [1, 256]),
        (pa.duration("s"), [1, 256]),
        (pa.string(), ["", "a", "ab"]),
        (pa.large_binary(), [b"", b"\0", b"\1"]),
        (pa.binary(2), [b"ab", b"ba"]),
        (pa.dictionary(pa.int8(), pa.string()), ["a", "b"]),
        (pa.list_(pa.int8(), 0), [[]]),
        (pa.struct([]), [{}]),
    ],
    ids=str,
)
def test_each_type_in_nested_keys(dtype: pa.DataType, values: list[object]) -> None:
    values = [*values, None]
    for outer, wrapped in (
        (pa.struct({"x": dtype}), [{"x": value} for value in values]),
        (pa.list_(dtype), [[value, other] for value in values for other in values]),
        (pa.list_(dtype, 1), [[value] for value in values]),
    ):
        left, right = [*wrapped, None], [None, *wrapped[::-1]]
        match = match_keys(*([pa.chunked_array([pa.array(side, outer)])] for side in (left, right)))
        assert_matching(left, right, match)


def assert_matching(left: list[object], right: list[object], match: KeyMatch) -> None:
    expected = [
        (i, j)
        for i, value in enumerate(left)
        for j, other in enumerate(right)
        if value is not None and value == other
    ]
    assert [*zip(match.target, match.source, strict=True)] == expected


STRUCT = pa.struct({"a": pa.int64(), "b": pa.float64()})


NESTED_KEYS = pytest.mark.parametrize(
    ("dtype", "keys", "others"),
    [
        (STRUCT, [None, {}, {"a": 1, "b": NAN}, {"b": 0.0}], [{"a": 2}, {"b": -0.0}]),
        (pa.list_(pa.float32()), [None, [], [None], [NAN, None], [0.0]], [[None, NAN], [-0.0]]),
        (pa.large_list(STRUCT), [[None], [{}], [{}, None], []], [[None, {}], [{}, {}]]),
        (pa.list_(pa.float64(), 2), [None, [1, NAN], [None, 0]], [[NAN, 1], [0, None]]),
        (pa.map_("string", "int64"), [None, [("a", 1), ("b", 2)], []], [[("b", 2), ("a", 1)]]),
    ],
    ids=str,
)


@NESTED_KEYS
def test_nested_keys(
    tmp_path: Path, dtype: pa.DataType, keys: list[object], others: list[object]
) -> None:
    table = pa.table({"key": pa.array(keys, dtype), "v": range(len(keys))})
    source = pa.table({"key": pa.array([*others, *keys], dtype)})
    source = source.append_column("v", pa.array(range(100, 100 + len(source))))
    results = []
    for name, client in (("theirs", lance.dataset), ("ours", open_dataset)):
        path = tmp_path / name
        lance.write_dataset(table, path, data_storage_version="2.2")
        merge = client(str(path)).merge_insert("key").when_matched_update_all()
        counts = dict(merge.when_not_matched_insert_all().execute(source))
        counts.pop("dataset", None)
        rows = lance.dataset(path).to_table()
        results.append((counts, sorted(map(str, rows.to_pylist()))))
    assert results[0] == results[1]
    null_keys = keys.count(None)
    assert results[1][0] == {
        "num_inserted_rows": len(others) + null_keys,
        "num_updated_rows": len(keys) - null_keys,
        "num_deleted_rows": 0,
    }


@NESTED_KEYS
def test_merge_by_nested_keys(
    tmp_path: Path, dtype: pa.DataType, keys: list[object], others: list[object]
) -> None:
    table = pa.table({"key": pa.array([*others, *keys], dtype)})
    right = pa.table({"key": pa.array(keys, dtype), "v": range(len(keys))})
    for name, client in (("theirs", lance.dataset), ("ours", open_dataset)):
        path = tmp_path / name
        lance.write_dataset(table, path, data_storage_version="2.2")
        if pa.types.is_map(dtype) and name == "theirs":
            with pytest.raises(OSError, match="not yet implemented"):
                client(str(path)).merge(right, "key")
            continue
        client(str(path)).merge(right, "key")
        values = lance.dataset(path).to_table()["v"].to_pylist()
        assert values == [*[None] * len(others), *range(len(keys))]


def test_blobs_are_no_keys(tmp_path: Path) -> None:
    rows = pa.table({"b": lance.blob_array([b"a"]), "v": [1]})
    lance.write_dataset(rows, tmp_path / "t", data_storage_version="2.2")
    merge = open_dataset(tmp_path / "t").merge_insert("b").when_matched_update_all()
    with pytest.raises(UnsupportedTypeError, match="column 'b' has blobs"):
        merge.execute(rows)


RIGHT = pa.table({"id": ids(2, None, 9, 2, 4), "z": ["B", "N", "X", "B2", "D"]})


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("right_on", [None, "k"])
def test_merge(tmp_path: Path, right_on: str | None, stable: bool) -> None:
    right = RIGHT if right_on is None else RIGHT.rename_columns([right_on, "z"])
    theirs = written(tmp_path, "theirs", enable_stable_row_ids=stable)
    written(tmp_path, "ours", enable_stable_row_ids=stable)
    theirs.merge(right, "id", right_on)
    dataset = open_dataset(tmp_path / "ours").merge(right, "id", right_on)
    assert str(dataset.to_table().to_pylist()) == str(theirs.to_table().to_pylist())
    assert dataset.schema == theirs.schema
    read = lance.dataset(str(tmp_path / "ours"))
    read.validate()
    assert str(read.to_table().to_pylist()) == str(theirs.to_table().to_pylist())


@pytest.mark.parametrize(
    ("right", "left_on", "right_on"),
    [
        (RIGHT.rename_columns(["id", "v"]), "id", None),
        (RIGHT.set_column(0, "id", RIGHT["id"].cast(pa.int32())), "id", None),
        (RIGHT, "q", None),
        (RIGHT, "id", "q"),
        (pa.table([RIGHT["id"], RIGHT["z"]], schema=pa.schema(
            [pa.field("id", pa.int64()), pa.field("z", pa.string(), nullable=False)])), "id", None),
    ],
)  # fmt: skip
def test_refused_merges(
    tmp_path: Path, right: pa.Table, left_on: str, right_on: str | None
) -> None:
    theirs = written(tmp_path, "t")
    ours: Dataset = open_dataset(tmp_path / "t")
    with pytest.raises((OSError, ValueError)):
        theirs.merge(right, left_on, right_on)
    with pytest.raises(InvalidInputError):
        ours.merge(right, left_on, right_on)
    assert ours.latest_version == ours.version


def test_merge_by_a_dictionary(tmp_path: Path) -> None:
    dtype = pa.dictionary(pa.int8(), pa.string())
    expected = [1, 2, None]
    for name in ("own", "pylance"):
        path = str(tmp_path / name)
        lance.write_dataset(pa.table({"k": pa.array(["b", None, "a"], dtype)}), path)
        dataset = open_dataset(path) if name == "own" else lance.dataset(path)
        dataset.merge(pa.table({"k": pa.array(["b", "b", None], dtype), "v": [0, 1, 2]}), "k")
        assert lance.dataset(path).to_table()["v"].to_pylist() == expected


def test_merge_without_rows_adds_nulls(tmp_path: Path) -> None:
    """pylance refuses this."""
    written(tmp_path, "t")
    dataset = open_dataset(tmp_path / "t").merge(RIGHT.slice(0, 0), "id")
    assert dataset.to_table()["z"].to_pylist() == [None] * 5


def typed_rows(first: int, count: int) -> pa.Table:
    """Rows of nested columns, dictionaries, lists, times, decimals and vectors."""
    numbers = range(first, first + count)
    struct = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    values = {
        "id": pa.array(numbers, pa.int64()),
        "s": pa.array([None if i % 5 == 0 else {"x": i, "y": [str(i)] * (i % 3)} for i in numbers], struct),
        "d": pa.array([f"d{i % 3}" for i in numbers]).dictionary_encode(),
        "t": pa.array([i * 10**6 for i in numbers], pa.timestamp("us", "UTC")),
        "m": pa.array([None if i % 4 == 0 else i for i in numbers]).cast(pa.decimal128(23, 2)),
        "v": pa.array([[float(i)] * 4 for i in numbers], pa.list_(pa.float32(), 4)),
        "b": pa.array([bytes([i % 256]) * (i % 7) for i in numbers], pa.binary()),
    }  # fmt: skip
    return pa.table(values)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("columns", [None, ["id", "s", "v"]])
def test_types(tmp_path: Path, version: str, columns: list[str] | None) -> None:
    base, source = typed_rows(0, 60), typed_rows(45, 40)
    if version == "2.0":
        # Files of this version cannot store null structs.
        base, source = (table.drop_columns(["s"]) for table in (base, source))
        columns = columns and ["id", "v"]
    source = source if columns is None else source.select(columns)
    results = []
    for name in ("theirs", "ours"):
        lance.write_dataset(
            base, str(tmp_path / name), max_rows_per_file=25, data_storage_version=version
        )
    theirs = lance.dataset(str(tmp_path / "theirs"))
    upsert(theirs.merge_insert("id")).execute(source)
    results.append(theirs.to_table())
    upsert(open_dataset(tmp_path / "ours").merge_insert("id")).execute(source)
    read = lance.dataset(str(tmp_path / "ours"))
    read.validate()
    results += [read.to_table(), open_dataset(tmp_path / "ours").to_table()]
    assert rows_of(results[1]) == rows_of(results[0])
    assert rows_of(results[2]) == rows_of(results[0])


@pytest.mark.parametrize("key", ["d", "t", "m", "b"])
def test_keys_of_other_types(tmp_path: Path, key: str) -> None:
    base = typed_rows(1, 12).select(["id", key])
    source = typed_rows(5, 20).select(["id", key])
    if key == "d":
        base, source = base.slice(0, 2), source.slice(0, 2)
    for name in ("theirs", "ours"):
        lance.write_dataset(base, str(tmp_path / name))
    merge = "when_matched_update_all"
    theirs, ours = lance.dataset(str(tmp_path / "theirs")), open_dataset(tmp_path / "ours")
    if key in ("m", "b"):
        # Values occur several times.
        source = source.slice(0, 1)
    expected = getattr(theirs.merge_insert(key), merge)().execute(source)
    result = getattr(ours.merge_insert(key), merge)().execute(source)
    dataset = result.pop("dataset")
    assert result == expected
    assert rows_of(dataset.to_table()) == rows_of(theirs.to_table())


def test_blobs_move_with_their_rows(tmp_path: Path) -> None:
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), blob, pa.field("n", pa.int64())])
    table = pa.table([[1, 2, 3], [b"one", b"two" * 3000, None], [1, 2, 3]], schema=schema)
    lance.write_dataset(table, str(tmp_path / "t"), data_storage_version="2.1")
    dataset = open_dataset(tmp_path / "t")
    new = pa.table([[2, 9], [20, 90]], schema=schema.remove(1))
    result = upsert(dataset.merge_insert("id")).execute(new)
    rows = result["dataset"].to_table(blob_handling="all_binary").to_pylist()
    assert {row["id"]: (row["b"], row["n"]) for row in rows} == {
        1: (b"one", 1),
        2: (b"two" * 3000, 20),
        3: (None, 3),
        9: (None, 90),
    }


def test_a_merge_follows_changes_of_other_clients(tmp_path: Path) -> None:
    """Handles are opened before another client commits."""
    theirs = written(tmp_path, "t")
    early = [open_dataset(tmp_path / "t") for _ in range(3)]
    theirs.update({"v": "'theirs'"}, "id = 2")
    theirs.delete("id = 4")
    first = upsert(early[0].merge_insert("id")).execute(SOURCE)
    assert (first["num_updated_rows"], first["num_inserted_rows"]) == (1, 3)
    rows = first["dataset"].to_table(filter="id in (2, 4)").to_pylist()
    assert sorted(row["v"] or "" for row in rows) == ["", "B"]
    with pytest.raises(CommitConflictError):
        early[1].merge_insert("id").when_matched_update_all().conflict_retries(0).execute(SOURCE)
    second = early[1].merge_insert("id").when_matched_delete().execute(SOURCE)
    assert second["num_deleted_rows"] == 3
    added = early[2].merge(RIGHT, "id")
    assert added.to_table(filter="id = 1")["z"].to_pylist() == [None]
    read = lance.dataset(str(tmp_path / "t"))
    read.validate()
    assert rows_of(read.to_table()) == rows_of(added.to_table())


def test_target_bases(tmp_path: Path) -> None:
    written(tmp_path, "t")
    base = BasePath(0, str(tmp_path / "base"), False, "cold")
    dataset = open_dataset(tmp_path / "t").add_bases([base])
    moved = upsert(dataset.merge_insert("id")).target_bases(["cold"]).execute(SOURCE)["dataset"]
    assert {file.base_id for file in moved.fragments[-1].files} == {1}
    assert any((tmp_path / "base").iterdir())
    assert rows_of(lance.dataset(str(tmp_path / "t")).to_table()) == rows_of(moved.to_table())


def uuids(*numbers: int) -> pa.Array:
    storage = pa.array([number.to_bytes(16, "big") for number in numbers], pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


def test_extension_types(tmp_path: Path) -> None:
    """Keys, new values and new columns of uuids, and documents of JSON."""
    json = pa.json_(pa.utf8())
    table = pa.table({"u": uuids(1, 2, 3), "j": pa.array(['{"a":1}', None, "[]"], json)})
    source = pa.table({"u": uuids(3, 4), "j": pa.array(['{"a":7}', '{"a":8}'], json)})
    other = pa.table({"u": uuids(1, 9), "z": uuids(10, 90)})
    tables = []
    for name in ("theirs", "ours"):
        lance.write_dataset(table, str(tmp_path / name), data_storage_version="2.2")
    theirs, ours = lance.dataset(str(tmp_path / "theirs")), open_dataset(tmp_path / "ours")
    upsert(theirs.merge_insert("u")).execute(source)
    theirs.merge(other, "u")
    merge = ours.merge_insert("u").when_matched_update_all("source.u = target.u")
    dataset = merge.when_not_matched_insert_all().execute(source)["dataset"]
    dataset = dataset.merge(other, "u")
    tables = [dataset.to_table(), lance.dataset(str(tmp_path / "ours")).to_table()]
    for result in tables:
        assert result.schema == theirs.schema
        assert rows_of(result) == rows_of(theirs.to_table())


@pytest.mark.parametrize("dtype", [pa.json_(pa.string()), pa.string(), pa.large_string()])
def test_json_is_compared_as_the_table_stores_it(tmp_path: Path, dtype: pa.DataType) -> None:
    """Pylance compares the texts as they are given, and inserts a row of the same document."""
    path = str(tmp_path / "t")
    documents = pa.array(['{"b": 1, "a": 2}', '{"x":3}', None], pa.json_(pa.string()))
    lance.write_dataset(pa.table({"id": [1, 2, 3], "j": documents}), path)
    given = pa.table({"id": [7, 8], "j": pa.array(['{"a":2,   "b" :1}', '{"y":4}'], dtype)})
    merge = open_dataset(path).merge_insert("j")
    counts = merge.when_matched_update_all().when_not_matched_insert_all().execute(given)
    assert (counts["num_updated_rows"], counts["num_inserted_rows"]) == (1, 1)
    same = pa.table({"id": [7, 2], "j": pa.array(['{"b":1, "a":2}', '{"x": 4}'], dtype)})
    merge = open_dataset(path).merge_insert("id")
    merge.when_matched_update_all("source.j != target.j").execute(same)
    rows = lance.dataset(path).to_table().to_pylist()
    assert {row["id"]: row["j"] for row in rows} == {
        2: '{"x":4}',
        3: None,
        7: '{"a":2,"b":1}',
        8: '{"y":4}',
    }
    damaged = pa.table({"id": [9], "j": pa.array(["{"], dtype)})
    merge = open_dataset(path).merge_insert("j").when_not_matched_insert_all()
    with pytest.raises(InvalidInputError, match="the source, column 'j', row 0"):
        merge.execute(damaged)


@pytest.mark.parametrize("stable", [False, True])
def test_updated_and_new_rows_share_a_fragment(tmp_path: Path, stable: bool) -> None:
    """Also if a file is full between them; the lineage is that of pylance."""
    theirs = written(tmp_path, "theirs", enable_stable_row_ids=stable)
    written(tmp_path, "ours", enable_stable_row_ids=stable)
    ours = open_dataset(tmp_path / "ours")
    before = len(ours.get_fragments())
    upsert(theirs.merge_insert("id")).execute(SOURCE)
    ours = upsert(ours.merge_insert("id")).execute(SOURCE)["dataset"]
    assert len(ours.get_fragments()) == before + 1
    for max_rows in (1, 2, 3, 4):
        rewriter = RowRewriter(
            ours._table, ours._table.schema, ["id", "v", "w"], tag=b"", max_rows_per_file=max_rows
        )
        live = ours.to_table(["id", "_rowaddr"], filter="id = 1 OR id = 5")
        new = SOURCE.combine_chunks().to_batches()[0]
        rewriter.move(np.sort(live["_rowaddr"].to_numpy()), new.slice(0, 2))
        rewriter.insert(new)
        result = rewriter.finish()
        assert not result.inserted
        assert sum(fragment.physical_rows for fragment in result.fragments) == 6
        rewriter.abort()
    if stable:
        columns = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
        rows = lance.dataset(str(tmp_path / "ours")).to_table(columns)
        assert rows_of(rows) == rows_of(theirs.to_table(columns))
        assert rows_of(ours.to_table(columns)) == rows_of(rows)


def test_versions_of_a_handle_share_deletions(tmp_path: Path) -> None:
    """A merge does not read the deletion files again that the merge before it has read."""
    written(tmp_path, "t")
    ours = open_dataset(tmp_path / "t")
    merged = upsert(ours.merge_insert("id")).execute(SOURCE)["dataset"]
    assert merged._table.paths.deletions is ours._table.paths.deletions
