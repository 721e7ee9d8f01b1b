"""Zone maps that this package writes are those of pylance, and pylance uses them."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.indices import IndexConfig

import lance_spark
from lance_spark.errors import InvalidOptionError, UnsupportedTypeError
from tests.support.tables.index_contents import IndexContent, column_names, typed_rows

ROWS = 6_000
COLUMNS = column_names(typed_rows(2))


@pytest.fixture(scope="module", params=[None, 100], ids=["default", "100"])
def rows_per_zone(request: pytest.FixtureRequest) -> int | None:
    return request.param


@pytest.fixture(scope="module", params=["2.0", "2.1", "2.2", "stable"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with deleted rows: in the middle of a fragment, at both ends, and a whole fragment."""
    path = tmp_path_factory.mktemp("zones") / "t.lance"
    is_stable = request.param == "stable"
    rows = typed_rows(ROWS)
    if request.param == "2.0":
        # Files of version 2.0 do not record which structs are null.
        a = rows["st"].combine_chunks().field(0)
        rows = rows.drop(["st"]).append_column("st", pa.StructArray.from_arrays([a], ["a"]))
    lance.write_dataset(
        rows,
        str(path),
        max_rows_per_file=1_600,
        enable_stable_row_ids=is_stable,
        data_storage_version="2.2" if is_stable else request.param,
    )
    dataset = lance.dataset(str(path))
    dataset.delete("id < 3 OR (id >= 500 AND id < 900) OR (id >= 1600 AND id < 3200) OR id > 5990")
    if is_stable:
        lance.dataset(str(path)).update({"i8": "NULL"}, where="id % 100 = 50")
    return path


@pytest.mark.sample(9)
@pytest.mark.parametrize("column", COLUMNS)
def test_files_are_those_of_pylance(path: Path, column: str, rows_per_zone: int | None) -> None:
    options = {} if rows_per_zone is None else {"rows_per_zone": rows_per_zone}
    config = IndexConfig("zonemap", options)
    lance.dataset(str(path)).create_scalar_index(column, config, f"{column}_theirs")
    dataset = lance_spark.open_dataset(str(path))
    dataset.create_scalar_index(column, "zonemap", f"{column}_own", **options)
    own, theirs = (IndexContent.read(path, f"{column}_{who}") for who in ("own", "theirs"))
    assert own.bits() == theirs.bits()
    assert own.rows.schema.equals(theirs.rows.schema, check_metadata=False)
    assert (own.nulls, own.metadata, own.manifest) == (
        theirs.nulls,
        theirs.metadata,
        theirs.manifest,
    )


@pytest.mark.parametrize("train", [True, False])
def test_empty_indexes(tmp_path: Path, train: bool) -> None:
    path = tmp_path / "t.lance"
    rows = typed_rows(60)
    lance.write_dataset(rows if not train else rows.slice(0, 0), str(path))
    for column in ("id", "f32", "s", "span", "flag"):
        theirs_name, own_name = f"{column}_theirs", f"{column}_own"
        lance.dataset(str(path)).create_scalar_index(column, "ZONEMAP", theirs_name, train=train)
        dataset = lance_spark.open_dataset(str(path))
        dataset = dataset.create_scalar_index(column, "ZONEMAP", own_name, train=train)
        own, theirs = (IndexContent.read(path, name) for name in (own_name, theirs_name))
        assert own.rows.equals(theirs.rows)
        assert (own.metadata, own.manifest) == (theirs.metadata, theirs.manifest)
        expected = 0 if train else int(np.count_nonzero(rows[column].is_null()))
        assert len(dataset.to_table(["id"], filter=f"{column} IS NULL")) == expected
        lance.dataset(str(path)).drop_index(theirs_name)
    lance.dataset(str(path)).insert(rows)
    assert len(lance_spark.open_dataset(str(path)).to_table(["id"], filter="id = 3")) == 2 - train
    assert lance.dataset(str(path)).to_table(filter="id = 3").num_rows == 2 - train


def test_bounds_of_fixed_size_binary(tmp_path: Path) -> None:
    """pylance writes no bounds of such columns, but compares with them."""
    path = tmp_path / "t.lance"
    values = pa.array([b"%06d" % number for number in range(2000)], pa.binary(6))
    lance.write_dataset(pa.table({"fix": values}), str(path), max_rows_per_file=1000)
    dataset = lance_spark.open_dataset(str(path)).create_scalar_index("fix", "ZONEMAP")
    text = "fix < X'303030303137'"
    assert "index: fix_idx (ZONEMAP): 1000 rows" in dataset.explain(filter=text)
    assert len(dataset.to_table(filter=text)) == 17
    oracle = lance.dataset(str(path))
    assert "ScalarIndexQuery" in oracle.scanner(filter=text).explain_plan()
    assert oracle.to_table(filter=text).num_rows == 17


def test_segments_and_chosen_fragments(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"id": np.arange(400)}), str(path), max_rows_per_file=100)
    dataset = lance_spark.open_dataset(str(path))
    dataset = dataset.create_scalar_index(
        "id", "ZONEMAP", fragment_ids=[0, 1, 3], num_segments=2, rows_per_zone=40
    )
    assert [index["fragment_ids"] for index in dataset.list_indices()] == [{0, 1}, {3}]
    # The fragment that no segment covers is read.
    tasks = dataset.plan(filter="id = 45")
    slices = [(part.fragment.id, part.start, part.stop) for task in tasks for part in task.slices]
    assert slices == [(0, 40, 80), (2, 0, 100)]
    for text in ("id = 45", "id >= 370", "id IN (5, 250)"):
        oracle = lance.dataset(str(path)).scanner(filter=text)
        assert "ScalarIndexQuery" in oracle.explain_plan()
        assert dataset.to_table(filter=text).equals(oracle.to_table())


@pytest.mark.parametrize(
    "options", [{"rows_per_zone": 0}, {"rows_per_zone": True}, {"zone_size": 5}]
)
def test_wrong_options(tmp_path: Path, options: dict[str, int]) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"id": [1]}), str(path))
    expected = "rows_per_zone must be an integer from 1 to|the options are rows_per_zone"
    with pytest.raises(InvalidOptionError, match=expected):
        lance_spark.open_dataset(str(path)).create_scalar_index("id", "ZONEMAP", **options)


@pytest.mark.parametrize("index_type", ["BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"])
def test_dictionaries_are_refused(tmp_path: Path, index_type: str) -> None:
    """With an index of strings, pylance would fail or find no rows."""
    path = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"x": pa.array(["a", "b"]).dictionary_encode()}), str(path))
    with pytest.raises(UnsupportedTypeError, match="does not take column 'x' of type dictionary"):
        lance_spark.open_dataset(str(path)).create_scalar_index("x", index_type)
