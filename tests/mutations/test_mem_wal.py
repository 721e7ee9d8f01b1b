"""Changes of columns of a table with a MemWAL are refused as by pylance, and drops of its key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import UnsupportedFeatureError
from tests.support.tables.damaged import files_below

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=KEY),
        pa.field("place", pa.int32()),
        pa.field("word", pa.string()),
    ]
)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """The key is `id`, rows are assigned to shards by `place`."""
    data = pa.table({"id": [1, 2], "place": [3, 4], "word": ["a", "b"]}, schema=SCHEMA)
    dataset = lance.write_dataset(data, str(tmp_path / "t"), data_storage_version="2.2")
    dataset.initialize_mem_wal(identity_column="place")
    return str(dataset.uri)


REFUSED: dict[str, tuple[Callable[[lance_spark.Dataset], object], str]] = {
    "cast": (
        lambda dataset: dataset.alter_columns({"path": "place", "data_type": pa.int64()}),
        "column 'place' cannot be cast",
    ),
    "not null": (
        lambda dataset: dataset.alter_columns({"path": "word", "nullable": False}),
        "column 'word' cannot be made not nullable",
    ),
    "constant": (
        lambda dataset: dataset.add_columns({"new": 1}),
        "values of the new column 'new' cannot be computed",
    ),
    "computed": (
        lambda dataset: dataset.add_columns({"new": lambda rows: rows["id"]}),
        "values of the new column 'new' cannot be computed",
    ),
    "drop of the key": (
        lambda dataset: dataset.drop_columns(["id"]),
        "column 'id' of its key or sharding cannot be dropped",
    ),
    "drop of the sharding": (
        lambda dataset: dataset.drop_columns(["word", "place"]),
        "column 'place' of its key or sharding cannot be dropped",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_changes_of_columns(uri: str, name: str) -> None:
    change, message = REFUSED[name]
    before = files_below(Path(uri))
    with pytest.raises(UnsupportedFeatureError, match=message) as caught:
        change(lance_spark.open_dataset(uri))
    assert uri in str(caught.value)
    assert "__lance_mem_wal" in str(caught.value)
    assert files_below(Path(uri)) == before


THEIRS: dict[str, Callable[[lance.LanceDataset], object]] = {
    "cast": lambda dataset: dataset.alter_columns({"path": "place", "data_type": pa.int64()}),
    "not null": lambda dataset: dataset.alter_columns({"path": "word", "nullable": False}),
    "computed": lambda dataset: dataset.add_columns({"new": "id + 1"}),
}


@pytest.mark.parametrize("name", THEIRS)
def test_pylance_refuses_the_same(uri: str, name: str) -> None:
    with pytest.raises((OSError, ValueError, RuntimeError), match=r"(?i)mem_?wal"):
        THEIRS[name](lance.dataset(uri))


ALLOWED: dict[str, Callable[[lance_spark.Dataset], object]] = {
    "nulls": lambda dataset: dataset.add_columns(pa.field("new", pa.int32())),
    "rename": lambda dataset: dataset.alter_columns({"path": "place", "name": "city"}),
    "drop": lambda dataset: dataset.drop_columns(["word"]),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_other_changes_keep_the_mem_wal(uri: str, name: str) -> None:
    ALLOWED[name](lance_spark.open_dataset(uri))
    theirs = lance.dataset(uri)
    theirs.validate()
    assert theirs.version == 3
    assert theirs.mem_wal_index_details() is not None


def test_without_a_mem_wal_the_changes_are_made(tmp_path: Path) -> None:
    data = pa.table({"id": [1, 2], "place": [3, 4], "word": ["a", "b"]}, schema=SCHEMA)
    for number, (change, _) in enumerate(REFUSED.values()):
        uri = str(tmp_path / str(number))
        lance.write_dataset(data, uri, data_storage_version="2.2")
        change(lance_spark.open_dataset(uri))
        lance.dataset(uri).validate()
