"""`DatasetDelta`: what happened between two versions, by the versions that rows record.

| rows | `_row_created_at_version` | `_row_last_updated_at_version` |
| --- | --- | --- |
| inserted | after the earlier version | any |
| updated | not after the earlier version | after the earlier version |

Inserted and updated rows are read from the version that the `Dataset` is open at, as in pylance: a
row that this version no longer has is in none of them, and its values are those of this version.
Deleted rows are those whose row ids the earlier version has and the later version does not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.errors import InvalidInputError, UnsupportedFeatureError, error_context
from lance_spark.scan.fragment import row_meta

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.table.commit.transaction import Transaction

_ID, _CREATED = row_meta.ROW_ID.name, "_row_created_at_version"
_UPDATED = "_row_last_updated_at_version"


class DatasetDelta:
    """The differences of two versions; `Dataset.delta` returns it.

    Parameters
    ----------
    dataset : Dataset
    begin_version, end_version : int
        The earlier and the later version.
    """

    def __init__(self, dataset: Dataset, begin_version: int, end_version: int) -> None:
        self._dataset = dataset
        self._begin = begin_version
        self._end = end_version

    def __repr__(self) -> str:
        return f"DatasetDelta({self._begin}, {self._end})"

    def list_transactions(self) -> list[Transaction | None]:
        """Return the transactions after the earlier version, up to the later one, oldest first.

        None stands for a transaction that a writer did not record.

        Raises
        ------
        VersionNotFoundError
            Cleanup has removed one of the versions, or it does not exist.
        CorruptTableError, StorageError
        """
        versions = range(self._begin + 1, self._end + 1)
        return [self._dataset.read_transaction(version) for version in versions]

    def get_inserted_rows(self) -> pa.RecordBatchReader:
        """Return the rows that were inserted, as the version of the `Dataset` has them.

        Returns
        -------
        RecordBatchReader
            All columns, ``_rowid``, ``_row_created_at_version`` and
            ``_row_last_updated_at_version``.

        Raises
        ------
        UnsupportedFeatureError
            The table has no stable row ids, so it does not record when a row was created.
        VersionNotFoundError, CorruptTableError, CorruptFileError, StorageError
        """
        return self._rows([(_CREATED, ">", self._begin), (_CREATED, "<=", self._end)])

    def get_updated_rows(self) -> pa.RecordBatchReader:
        """Return the rows that were updated, with their new values; see `get_inserted_rows`."""
        return self._rows(
            [
                (_CREATED, "<=", self._begin),
                (_UPDATED, ">", self._begin),
                (_UPDATED, "<=", self._end),
            ]
        )

    def get_deleted_row_ids(self) -> pa.RecordBatchReader:
        """Return the ids of the rows that the later version no longer has, in increasing order.

        Returns
        -------
        RecordBatchReader
            One column, ``_rowid``.

        Raises
        ------
        InvalidInputError
            The earlier version has the greater number.
        UnsupportedFeatureError
            The table has no stable row ids.
        VersionNotFoundError, CorruptTableError, StorageError
        """
        if self._begin > self._end:
            # The answer would have the ids of rows that later versions inserted.
            with error_context(self._dataset.uri):
                raise InvalidInputError(
                    f"begin_version {self._begin} is later than end_version {self._end}; swap them"
                )
        deleted = np.setdiff1d(self._ids(self._begin), self._ids(self._end), assume_unique=True)
        return pa.table({_ID: pa.array(deleted, pa.uint64())}).to_reader()

    def _rows(self, filters: list[tuple[str, str, int]]) -> pa.RecordBatchReader:
        dataset = self._at(self._dataset.version)
        columns = [*dataset.schema.names, _ID, _CREATED, _UPDATED]
        return pa.RecordBatchReader.from_batches(
            dataset.schema_of(columns), dataset.to_batches(columns, filters=filters)
        )

    def _ids(self, version: int) -> npt.NDArray[np.uint64]:
        if version == 0:
            return np.empty(0, np.uint64)
        ids: npt.NDArray[np.uint64] = self._at(version).to_table([_ID])[_ID].to_numpy()
        return ids

    def _at(self, version: int) -> Dataset:
        dataset = self._dataset
        if version != dataset.version:
            dataset = dataset.checkout_version(version)
        if not dataset._table.manifest.flags.stable_row_ids:
            with error_context(dataset.uri):
                raise UnsupportedFeatureError(
                    f"version {version} has no stable row ids, so it does not record when rows "
                    "were created; write the table with enable_stable_row_ids, or read its change "
                    "feed by Spark"
                )
        return dataset


def compared(
    dataset: Dataset, other: int | None, begin_version: int | None, end_version: int | None
) -> DatasetDelta:
    """Return the differences of two versions; see `Dataset.delta`.

    - `other`: The version that the version of the dataset is compared with.
    - `begin_version`, `end_version`: Two versions instead.

    Raises InvalidInputError: not exactly one of both is given.
    """
    if other is not None:
        if begin_version is not None or end_version is not None:
            raise InvalidInputError(
                "give compared_against, or begin_version and end_version, not both"
            )
        begin_version, end_version = sorted((other, dataset.version))
    if begin_version is None or end_version is None:
        raise InvalidInputError("give compared_against, or begin_version and end_version")
    return DatasetDelta(dataset, begin_version, end_version)
