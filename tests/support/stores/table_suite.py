"""The behaviour of tables on every object store, compared with pylance if it can use the same
server. A test module for each kind of store inherits these tests.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import LanceError, TableExistsError


def rows(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64()), "s": [f"row {value}" for value in values]})


def values(table: Any) -> list[int]:
    return sorted(table["x"].to_pylist())


class TableSuite:
    """Fixtures: `root` is the URI of an empty folder, `options` are storage options for both
    pylance and this package.
    """

    def write(self, uri: str, options: dict[str, Any], mode: str, *numbers: int) -> Any:
        return lance_spark.write_dataset(rows(*numbers), uri, mode, storage_options=options)  # type: ignore[arg-type]

    def read(self, uri: str, options: dict[str, Any]) -> list[int]:
        return values(lance_spark.open_dataset(uri, storage_options=options).to_table())

    def test_both_write_and_both_read(self, root: str, options: dict[str, Any]) -> None:
        uri = f"{root}/t.lance"
        self.write(uri, options, "create", 1, 2)
        with pytest.raises(TableExistsError):
            self.write(uri, options, "create", 1, 2)
        self.write(uri, options, "append", 3)
        assert values(lance.dataset(uri, storage_options=options).to_table()) == [1, 2, 3]
        lance.write_dataset(rows(4), uri, mode="append", storage_options=options)
        dataset = lance_spark.open_dataset(uri, storage_options=options)
        assert dataset.version == 3
        assert values(dataset.to_table()) == [1, 2, 3, 4]
        dataset = dataset.delete([("x", "==", 2)])
        dataset.compact_files()
        assert self.read(uri, options) == [1, 3, 4]
        theirs = lance.dataset(uri, storage_options=options)
        theirs.validate()
        assert len(theirs.get_fragments()) == 1
        assert values(theirs.to_table()) == [1, 3, 4]
        assert values(theirs.checkout_version(3).to_table()) == [1, 2, 3, 4]

    def test_tables_of_pylance(self, root: str, options: dict[str, Any]) -> None:
        uri = f"{root}/theirs"
        lance.write_dataset(rows(1), uri, storage_options=options)
        lance.write_dataset(rows(2), uri, mode="append", storage_options=options)
        lance.dataset(uri, storage_options=options).tags.create("one", 1)
        dataset = lance_spark.open_dataset(uri, storage_options=options)
        assert dataset.version == 2
        assert values(
            lance_spark.open_dataset(uri, tag="one", storage_options=options).to_table()
        ) == [1]
        self.write(uri, options, "overwrite", 7)
        assert values(lance.dataset(uri, storage_options=options).to_table()) == [7]

    def test_names_with_escapes(self, root: str, options: dict[str, Any]) -> None:
        uri = f"{root}/a b+ü%2541.lance"
        self.write(uri, options, "create", 1)
        assert values(lance.dataset(uri, storage_options=options).to_table()) == [1]
        lance.write_dataset(rows(2), uri, mode="append", storage_options=options)
        assert self.read(uri, options) == [1, 2]

    def test_writers_side_by_side(self, root: str, options: dict[str, Any]) -> None:
        uri = f"{root}/raced"
        self.write(uri, options, "create", 0)

        def append(number: int) -> None:
            if number % 4 == 3:
                lance.write_dataset(rows(number), uri, mode="append", storage_options=options)
            else:
                self.write(uri, options, "append", number)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(append, range(1, 9)))
        dataset = lance_spark.open_dataset(uri, storage_options=options)
        assert values(dataset.to_table()) == list(range(9))
        assert dataset.version == 9
        assert [version.version for version in dataset.versions()] == list(range(1, 10))

    def test_old_versions_are_removed(self, root: str, options: dict[str, Any]) -> None:
        import datetime

        uri = f"{root}/cleaned"
        self.write(uri, options, "create", 1)
        dataset = self.write(uri, options, "overwrite", 2)
        dataset.cleanup_old_versions(datetime.timedelta(0), delete_unverified=True)
        assert self.read(uri, options) == [2]
        with pytest.raises(LanceError):
            lance_spark.open_dataset(uri, 1, storage_options=options)
        assert values(lance.dataset(uri, storage_options=options).to_table()) == [2]
