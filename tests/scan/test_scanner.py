"""What `Scanner` and `DatasetFragment` do besides pylance's cases (tests/interop/shadow)."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import ColumnOrdering, Fragment, LanceOperation, write_fragments
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.scan import take


@pytest.fixture
def dataset(tmp_path: Path) -> lance_spark.Dataset:
    rows = pa.table(
        {
            "a": list(range(100)),
            "f": [None if i % 10 == 0 else float("nan") if i % 7 == 0 else -i for i in range(100)],
            "v": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(200.0), pa.float32()), 2),
            "t": [f"word{i % 5} text" for i in range(100)],
        }
    )
    made = lance_spark.write_dataset(rows, tmp_path / "t", max_rows_per_file=30)
    return made.delete("a in (3, 4, 50)")


def test_batches_by_bytes(dataset: lance_spark.Dataset) -> None:
    batches = list(dataset.scanner(["a"], batch_size_bytes=80).to_batches())
    assert {batch.num_rows for batch in batches[:2]} == {10}
    assert pa.Table.from_batches(batches)["a"].to_pylist() == dataset.to_table()["a"].to_pylist()


def test_strict_batches_without_columns(dataset: lance_spark.Dataset) -> None:
    batches = dataset.scanner([], batch_size=40, strict_batch_size=True).to_batches()
    assert [batch.num_rows for batch in batches] == [40, 40, 17]


def test_an_offset_does_not_read_whole_fragments(dataset: lance_spark.Dataset) -> None:
    seen: list[Any] = []
    scanner = dataset.scanner(["a"], offset=88, scan_stats_callback=seen.append)
    assert scanner.to_table()["a"].to_pylist() == list(range(91, 100))
    assert seen[0].all_counts["numFragmentsScanned"] == 1


def test_nan_is_the_largest_number(dataset: lance_spark.Dataset) -> None:
    order = [ColumnOrdering("f", ascending=False), "a"]
    values = dataset.to_table(["a", "f"], order_by=order)
    assert values["a"].to_pylist()[:3] == [7, 14, 21]
    assert values["f"].to_pylist()[-9:] == [None] * 9
    assert dataset.to_table(["a"], order_by=order, limit=5)["a"].equals(values["a"][:5])


def test_order_by_children_of_structs(tmp_path: Path) -> None:
    structs = [{"a": i % 3, "t": {"b": str(9 - i)}} if i % 4 else None for i in range(8)]
    path = str(tmp_path / "o.lance")
    lance.write_dataset(pa.table({"id": range(8), "s": structs}), path, max_rows_per_file=3)
    ours, theirs = lance_spark.open_dataset(path), lance.dataset(path)
    for keys in (["s.a", "id"], ["s.t.b", "id"], ["id", "s.a"]):
        assert ours.to_table(order_by=keys).equals(theirs.to_table(order_by=keys)), keys
    last = [ColumnOrdering("s.t.b", ascending=False)]
    assert ours.to_table(["id"], order_by=last, limit=2)["id"].to_pylist() == [1, 2]
    for name in ("s.missing", "missing", "s"):
        with pytest.raises(InvalidInputError, match="order_by: column"):
            ours.scanner(order_by=[name])


def test_values_without_an_order_are_refused(dataset: lance_spark.Dataset) -> None:
    with pytest.raises(InvalidInputError, match=r"'v'.*no order"):
        dataset.scanner(order_by=["v"])


def test_expressions_have_the_meaning_of_spark(dataset: lance_spark.Dataset) -> None:
    columns = {"half": "a / 2", "big": "a > 97", "one": "1", "v": "v", "up": "upper(t)"}
    rows = dataset.scanner(columns, offset=96, with_row_id=True).to_table()
    assert rows.to_pylist() == [
        {
            "half": 49.5,
            "big": True,
            "one": 1,
            "v": [198.0, 199.0],
            "up": "WORD4 TEXT",
            "_rowid": (3 << 32) + 9,
        }
    ]
    with pytest.raises(InvalidInputError, match="same name"):
        dataset.scanner({"_rowid": "a"}, with_row_id=True).to_table()


def test_searches(dataset: lance_spark.Dataset) -> None:
    nearest = {"column": "v", "q": [20.0, 21.0], "k": 4}
    rows = dataset.scanner(["a"], nearest=nearest).to_table()
    assert rows["a"].to_pylist()[0] == 10
    assert dataset.scanner(["a"], nearest=nearest, offset=1).to_table().equals(rows.slice(1))
    assert dataset.scanner(["a"], nearest=nearest).projected_schema.equals(rows.schema)
    plain = dataset.scanner(["a"], nearest=nearest, disable_scoring_autoprojection=True)
    assert plain.to_table().schema.names == ["a"]
    assert plain.count_rows() == 4
    indexed = dataset.create_scalar_index("t", "INVERTED")
    text = indexed.scanner(["a"], full_text_query="word3", limit=3, offset=2)
    assert text.to_table().num_rows == 3
    assert [batch.num_rows for batch in text.to_batches()] == [3]
    for options in ({"order_by": ["a"]}, {"fragments": []}, {"include_deleted_rows": True}):
        with pytest.raises(InvalidInputError, match="nearest or full_text_query"):
            dataset.scanner(nearest=nearest, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"index_segments": ["a"]},
        {"row_addr_allowlist": b""},
        {"row_addr_blocklist": b""},
    ],
)
def test_arguments_that_are_not_supported(
    dataset: lance_spark.Dataset, options: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=next(iter(options))):
        dataset.scanner(**options)


def test_plans_are_shown(dataset: lance_spark.Dataset) -> None:
    scanner = dataset.scanner(["a"], "a < 20", fragments=dataset.get_fragments()[:1])
    assert "fragments: 1 of 4" in scanner.explain_plan()
    assert "rows returned: 18" in scanner.analyze_plan()
    assert "rows returned: 18" in scanner.analyze_plan(count_rows=True)
    assert "columns: none" in scanner.analyze_plan(count_rows=True)


def test_a_number_in_the_place_of_the_filter(dataset: lance_spark.Dataset) -> None:
    with pytest.raises(InvalidInputError, match="filter"):
        list(dataset.to_batches(["a"], 10))  # type: ignore[arg-type]


def test_length(dataset: lance_spark.Dataset) -> None:
    assert len(dataset) == 97


def test_fragments_of_another_version_are_refused(dataset: lance_spark.Dataset) -> None:
    new = dataset.insert(pa.table(dataset.take([0])))
    with pytest.raises(InvalidInputError, match="fragment 4"):
        dataset.scanner(fragments=new.get_fragments()[-1:]).to_table()
    with pytest.raises(InvalidInputError, match="twice"):
        dataset.scanner(fragments=[new.get_fragment(0)] * 2)


def test_fragments_as_json(dataset: lance_spark.Dataset) -> None:
    for fragment in dataset.get_fragments():
        text = json.dumps(fragment.metadata.to_json())
        assert Fragment.from_json(text).to_proto() == fragment.metadata.to_proto()
    for text in (
        "{}",
        "[1]",
        "nothing",
        '{"id": 1, "physical_rows": 2, "files": [{"path": "../x"}]}',
    ):
        with pytest.raises(InvalidInputError, match="JSON form"):
            Fragment.from_json(text)


def test_a_join_takes_the_last_of_several_rows(dataset: lance_spark.Dataset) -> None:
    rows = pa.table({"k": [1, 1, 2, None], "z": ["p", "q", "r", "s"]})
    parts = [part.merge(rows, "a", "k") for part in dataset.get_fragments()]
    operation = LanceOperation.Merge([part[0] for part in parts], parts[0][1])
    made = lance_spark.Dataset.commit(dataset, operation, dataset.version)
    assert made.to_table(["z"], limit=4)["z"].to_pylist() == [None, "q", "r", None]


def test_operations_check_their_arguments(dataset: lance_spark.Dataset) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: LanceOperation.Append([1]),
        lambda: LanceOperation.Merge([], "schema"),
        lambda: LanceOperation.Update(update_mode="other"),
        lambda: LanceOperation.Update(updated_fragment_offsets={0: b"x"}),
        lambda: LanceOperation.Rewrite([], [1]),
        lambda: write_fragments(pa.table({"a": [1]}), 5),
        lambda: lance_spark.Dataset.commit_batch(dataset, []),
    ]
    for call in calls:
        with pytest.raises(InvalidInputError):
            call()
    overwrite = write_fragments(
        pa.table({"q": [1]}), dataset, mode="overwrite", return_transaction=True
    )
    with pytest.raises(UnsupportedFeatureError, match="overwrite"):
        lance_spark.Dataset.commit_batch(dataset, [overwrite])


def test_a_fragment_can_be_pickled(dataset: lance_spark.Dataset) -> None:
    dataset.take([5])
    fragment = pickle.loads(pickle.dumps(dataset.get_fragment(1)))
    assert fragment.take([0, 28], ["a"])["a"].to_pylist() == [30, 59]


def test_children_of_structs_as_by_pylance(tmp_path: Path) -> None:
    inner = pa.struct([pa.field("x", pa.int32(), nullable=False), ("doc", pa.json_())])
    structs = [{"x": 1, "doc": '{"a":1}'}, None, {"x": 3, "doc": None}]
    storage = pa.array(structs, pa.struct([("x", pa.int32()), ("doc", pa.string())]))
    documents = pa.ExtensionArray.from_storage(pa.json_(), storage.field("doc"))
    rows = pa.StructArray.from_arrays(
        [storage.field("x").fill_null(0), documents], fields=list(inner), mask=storage.is_null()
    )
    nested = pa.StructArray.from_arrays([rows, pa.array([7, 8, 9])], ["s", "a"])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6.0), pa.float32()), 2)
    path = str(tmp_path / "t")
    table = pa.table({"id": range(3), "s": rows, "n": nested, "v": vectors})
    lance.write_dataset(table, path)
    theirs, ours = lance.dataset(path), lance_spark.open_dataset(path)
    near = {"column": "v", "q": [0.0, 1.0], "k": 2}
    reads: list[Callable[[Any, Any], pa.Table]] = [
        lambda dataset, columns: dataset.to_table(columns=columns),
        lambda dataset, columns: dataset.scanner(columns=columns, filter="id > 0").to_table(),
        lambda dataset, columns: pa.Table.from_batches(dataset.to_batches(columns=columns)),
        lambda dataset, columns: dataset.get_fragments()[0].to_table(columns=columns),
        lambda dataset, columns: dataset.head(2, columns=columns),
        lambda dataset, columns: dataset.to_table(columns=columns, limit=1, offset=1),
        lambda dataset, columns: dataset.to_table(columns, with_row_id=True, with_row_address=True),
        lambda dataset, columns: dataset.to_table(columns=columns, nearest=near),
        lambda dataset, columns: dataset.take([2, 0], columns=columns),
    ]
    for columns in (
        ["s.x"],
        ["s.doc", "id", "s.x"],
        ["s", "s.x"],
        ["n.s.x", "n.a"],
        ["n.s", "n.s.doc"],
        ["id", "s.x", "_rowid"],
        ["_rowid", "s.x"],
    ):
        for number, read in enumerate(reads):
            expected, rows_read = read(theirs, columns), read(ours, columns)
            assert rows_read.column_names == expected.column_names, (columns, number)
            assert rows_read.to_pylist() == expected.to_pylist(), (columns, number)
            assert rows_read.schema.types == expected.schema.types, (columns, number)
        assert ours.schema_of(columns) == ours.to_table(columns).schema
        names = theirs.scanner(columns=columns).projected_schema.names
        assert ours.scanner(columns=columns).projected_schema.names == names
    by_order = ours.to_table(["n.s.x"], order_by=[ColumnOrdering("id", ascending=False)])
    assert by_order.to_pylist() == [{"n.s.x": 3}, {"n.s.x": None}, {"n.s.x": 1}]
    assert ours.schema_of(["s.x"]).field("s.x").nullable
    with pytest.raises(InvalidInputError, match="no field 'q'"):
        ours.to_table(["s.q"])


def test_an_order_of_wide_rows_is_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the size of a batch, the rows of a part have a limited number of bytes."""
    rng = np.random.default_rng(3)
    narrow = pa.table({"k": rng.permutation(400), "b": [b"x"] * 400})
    wide = pa.table({"k": rng.permutation(100) + 200, "b": [rng.bytes(20_000) for _ in range(100)]})
    path = str(tmp_path / "t")
    lance_spark.write_dataset(narrow, path)
    dataset = lance_spark.write_dataset(wide, path, mode="append")
    expected = dataset.to_table().sort_by("k")["k"].to_pylist()
    parts: list[int] = []
    plain = take.take_addresses

    def counted(*arguments: Any) -> pa.Table:
        table = plain(*arguments)
        parts.append(table.nbytes)
        if table.num_rows > 30 and table.nbytes > 250_000:
            raise pa.ArrowInvalid("offset overflow")
        return table

    monkeypatch.setattr(take, "take_addresses", counted)
    monkeypatch.setattr(take, "PART_BYTES", 600_000)
    batches = list(dataset.scanner(["k", "b"], order_by=["k"]).to_batches())
    assert [number for batch in batches for number in batch["k"].to_pylist()] == expected
    assert 4 < len(parts) < 40
    assert max(parts) < 1_200_000
    assert max(batch.num_rows for batch in batches) > 150
    top = dataset.to_table(["k"], order_by=["k"], limit=7)
    assert dataset.to_table(["k"], order_by="k", limit=7).equals(top)
    assert top["k"].to_pylist() == expected[:7]
