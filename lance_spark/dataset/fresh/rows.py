"""`FreshRows`, what `Dataset.fresh` returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

import pyarrow as pa

from lance_spark.dataset._decorators import prefixes_errors
from lance_spark.dataset.fresh.reader import FreshReader
from lance_spark.dataset.scanning.options import (
    CountKeywords,
    ExplainKeywords,
    PlanKeywords,
    ProjectionKeywords,
)
from lance_spark.dataset.scanning.request import count_rows, planned, scan_request
from lance_spark.dataset.scanning.scanner import Scanner, explained
from lance_spark.errors import InvalidInputError
from lance_spark.keywords import parameters_of
from lance_spark.mem_wal.snapshot import FreshState, read_state

if TYPE_CHECKING:
    from lance_spark.dataset.branches import Branches
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.dataset.scanning.arrow_dataset import ArrowDataset
    from lance_spark.dataset.scanning.options import Filter
    from lance_spark.dataset.tags import Tags
    from lance_spark.scan.task import ScanTask
    from lance_spark.table.commit.transaction import Transaction
    from lance_spark.table.fragments.fragment import Fragment
    from lance_spark.table.manifest.history import VersionInfo
    from lance_spark.table.open import Reference
    from lance_spark.table.paths import BasePath


@prefixes_errors
class FreshRows:
    """The newest version of a table, and the rows of its MemWAL that the version does not have.

    Made by `Dataset.fresh`. Rows are read as if the rows of the MemWAL had been merged into the
    table by its primary key. Later writes are not visible; each shard is as it was when it was
    read.

    Rows of a MemWAL have no row ids, row addresses and positions, so they cannot be selected or
    returned by these. Values of blob columns can be read as bytes.

    Attributes
    ----------
    num_shards, num_sstables, num_entries : int
        Shards with rows that the version does not have, and their SSTables and WAL entries.

    Examples
    --------
    >>> dataset.fresh().to_table(["id", "name"], filter="id > 5")
    """

    def __init__(
        self,
        dataset: Dataset,
        state: FreshState | None = None,
        key_columns: Sequence[str] | None = None,
    ) -> None:
        state = read_state(dataset._table) if state is None else state
        self._dataset = dataset._committed(state.table)
        self._table = state.table
        self._reader = FreshReader(state, dataset._storage_options, key_columns)

    def __repr__(self) -> str:
        return repr(self._reader)

    # The version, and the rows of the MemWAL

    @property
    def uri(self) -> str:
        """URI or path of the root of the table, or of the branch."""
        return self._dataset.uri

    @property
    def version(self) -> int:
        """Number of the version."""
        return self._dataset.version

    @property
    def branch(self) -> str | None:
        """Name of the branch of the version; None for the main branch."""
        return self._dataset.branch

    @property
    def latest_version(self) -> int:
        """Number of the branch's newest version, which is looked up."""
        return self._dataset.latest_version

    @property
    def data_storage_version(self) -> str:
        """File version of new data files, for example ``2.2``."""
        return self._dataset.data_storage_version

    @property
    def fragments(self) -> Sequence[Fragment]:
        """The fragments of the version, in the table's order."""
        return self._reader.fragments

    @property
    def key_columns(self) -> list[str]:
        """Paths of the columns by which rows replace older rows; empty without a primary key."""
        return self._reader.key_columns

    @property
    def num_shards(self) -> int:
        """Number of shards that are read."""
        return len(self._reader.scan.sources.shards)

    @property
    def num_sstables(self) -> int:
        """Number of SSTables that are read."""
        return self._reader.scan.sources.num_sstables

    @property
    def num_entries(self) -> int:
        """Number of WAL entries that are read."""
        return self._reader.scan.sources.num_entries

    @property
    def dataset(self) -> Dataset:
        """The version, without the rows of the MemWAL, with all methods of `Dataset`."""
        return self._dataset

    @property
    def tags(self) -> Tags:
        """The tags of the table."""
        return self._dataset.tags

    @property
    def branches(self) -> Branches:
        """The branches of the table."""
        return self._dataset.branches

    def base_paths(self) -> dict[int, BasePath]:
        """Return the base paths of the version, by id."""
        return self._dataset.base_paths()

    def versions(self) -> list[VersionInfo]:
        """Return all existing versions of the branch; see `Dataset.versions`."""
        return self._dataset.versions()

    def read_transaction(self, version: int) -> Transaction | None:
        """Return the transaction that created a version; see `Dataset.read_transaction`."""
        return self._dataset.read_transaction(version)

    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """Return the newest transactions; see `Dataset.get_transactions`."""
        return self._dataset.get_transactions(recent_transactions)

    # Scans and searches

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the table, with the metadata of the schema and of its fields."""
        return self._dataset.schema

    def schema_of(
        self,
        columns: Sequence[str] | None = None,
        **keywords: Unpack[ProjectionKeywords],
    ) -> pa.Schema:
        """Return the Arrow schema of a read with these arguments; see `Dataset.scanner`."""
        return self._dataset.schema_of(columns, **keywords)

    @parameters_of(scan_request)
    def scanner(self, *arguments: Any, **keywords: Any) -> Scanner:
        """Return a scanner; see `Dataset.scanner`."""
        return Scanner(self._reader, scan_request(self._reader, *arguments, **keywords))

    @parameters_of(scan_request)
    def to_table(self, *arguments: Any, **keywords: Any) -> pa.Table:
        """Return the rows as an Arrow table; see `Dataset.scanner`."""
        return self.scanner(*arguments, **keywords).to_table()

    @parameters_of(scan_request)
    def to_batches(self, *arguments: Any, **keywords: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches; see `Dataset.scanner`."""
        yield from self.scanner(*arguments, **keywords).to_batches()

    def count_rows(self, filter: Filter | None = None, **keywords: Unpack[CountKeywords]) -> int:
        """Return the number of rows that meet conditions; see `Dataset.count_rows`."""
        return count_rows(self._reader, filter, **keywords)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.count_rows()

    def plan(
        self, columns: Sequence[str] | None = None, **keywords: Unpack[PlanKeywords]
    ) -> list[ScanTask]:
        """Split a scan into tasks; see `Dataset.plan`."""
        return planned(self._reader, columns, **keywords).tasks

    def explain(
        self, columns: Sequence[str] | None = None, **keywords: Unpack[ExplainKeywords]
    ) -> str:
        """Return a text that says what a scan reads; see `Dataset.explain`."""
        return explained(self._reader, columns, **keywords)

    def arrow_dataset(self) -> ArrowDataset:
        """Return the rows as a `pyarrow.dataset.Dataset`; see `Dataset.arrow_dataset`."""
        from lance_spark.dataset.scanning.arrow_dataset import ArrowDataset

        return ArrowDataset(self)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all rows as a stream of Arrow's PyCapsule interface."""
        return self.scanner().__arrow_c_stream__(requested_schema)

    # What only a version has

    def checkout_version(self, version: Reference) -> NoReturn:
        """Refuse: the rows of a MemWAL belong to the newest version."""
        raise InvalidInputError(
            f"{self._table.store.display}: a fresh read is of the newest version; open version "
            f"{version!r} by open_dataset, or by checkout_version of a Dataset"
        )

    def take(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse: rows of a MemWAL have no positions."""
        raise self._reader.without_addresses("take")

    def take_rows(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse: rows of a MemWAL have no row ids."""
        raise self._reader.without_addresses("take_rows")

    def take_blobs(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse: rows of a MemWAL have no positions, row ids or addresses."""
        raise self._reader.without_addresses("take_blobs")

    def _stored_schema(
        self, columns: Sequence[str] | None = None, blob_handling: str | None = None
    ) -> pa.Schema:
        """Return the Arrow schema of a read, with stored types in place of extension types."""
        return self._dataset._stored_schema(columns, blob_handling)
