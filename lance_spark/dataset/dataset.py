"""`Dataset`, an open version of a table, and `open_dataset`."""

from __future__ import annotations

import datetime
import os
import random
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack

import pyarrow as pa
from pyroaring import BitMap

from lance_spark.arguments import check_least, checks_arguments, pylance_keywords
from lance_spark.dataset.decorators import prefixes_errors, prefixes_errors_at
from lance_spark.dataset.indexes import (
    CreateIndexKeywords,
    ExtendIndexesKeywords,
    ExtendKeywords,
    IndexSegmentKeywords,
    check_vectors,
    scalar_index,
    vector_index,
)
from lance_spark.dataset.mem_wal import MemWalKeywords, ShardingKeywords, WriterKeywords
from lance_spark.dataset.reader import VersionReader
from lance_spark.dataset.scan_keywords import (
    BlobKeywords,
    CountKeywords,
    ExplainKeywords,
    PlanKeywords,
    ProjectionKeywords,
)
from lance_spark.dataset.scan_request import count_rows, planned, scan_request
from lance_spark.dataset.write_options import (
    REFUSED,
    REFUSED_OF_COMPACTION,
    REFUSED_OF_INDEXES,
    REFUSED_OF_VECTORS,
    UNUSED,
    UNUSED_OF_COMPACTION,
    InsertKeywords,
)
from lance_spark.errors import (
    InvalidInputError,
    InvalidOptionError,
    UnsupportedFeatureError,
    error_context,
)
from lance_spark.file.schema.types import extended_schema
from lance_spark.keywords import also_takes, checked, of_group, parameters_of
from lance_spark.mutations.compaction.options import (
    CompactionKeywords,
    CompactionOptions,
    CompactKeywords,
)
from lance_spark.namespace import table_entry
from lance_spark.progress import ProgressKeywords, reports_progress
from lance_spark.scan.blob_files import DEFAULT_BUFFER_SIZE, BlobFile
from lance_spark.scan.search_keywords import VectorIndexKeywords
from lance_spark.storage.commit import CommitLock, ManifestStore, with_lock, with_store
from lance_spark.storage.options import with_base_params
from lance_spark.storage.store import ObjectStore
from lance_spark.table.bases import TargetBases
from lance_spark.table.commit.options import (
    CommitKeywords,
    CommitOptions,
    MessageRetryKeywords,
    RetryKeywords,
    RetryProgressKeywords,
    check_timeout,
)
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.manifest import history, versions
from lance_spark.table.manifest.history import VersionInfo
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.refs.names import branch_store
from lance_spark.turns import turn

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.compute as pc
    import pyarrow.dataset as pads

    from lance_spark.dataset.arrow_dataset import ArrowDataset
    from lance_spark.dataset.delta import DatasetDelta
    from lance_spark.dataset.files import LanceFileSession
    from lance_spark.dataset.fragments import DatasetFragment
    from lance_spark.dataset.fresh import FreshRows, LsmScanner
    from lance_spark.dataset.index_models import IvfModel
    from lance_spark.dataset.lance_schema import LanceSchema
    from lance_spark.dataset.merge import MergeInsertBuilder
    from lance_spark.dataset.optimizer import DatasetOptimizer
    from lance_spark.dataset.recall import IndexRecall
    from lance_spark.dataset.refs import Branches, Tags
    from lance_spark.dataset.scan_keywords import Columns, Filter
    from lance_spark.dataset.scanner import Scanner
    from lance_spark.dataset.session import Session
    from lance_spark.dataset.sql import SqlQueryBuilder
    from lance_spark.dataset.stats import DatasetStatistics
    from lance_spark.mem_wal.cleanup import MemWalCleanup
    from lance_spark.mem_wal.shards import ShardDescription
    from lance_spark.mem_wal.writer import ShardWriter
    from lance_spark.mutations.compaction.task import CompactionMetrics
    from lance_spark.mutations.indexes.check import IndexCheck
    from lance_spark.mutations.indexes.create import IndexRequest
    from lance_spark.mutations.indexes.existing import IndexDescription
    from lance_spark.scan.task import ScanTask
    from lance_spark.storage.io_counts import IOStats
    from lance_spark.table.bases import BaseLike
    from lance_spark.table.cleanup.run import CleanupStats
    from lance_spark.table.commit.write import Mode
    from lance_spark.table.fragments.fragment import Fragment
    from lance_spark.table.indexes.sections import Index
    from lance_spark.table.manifest.manifest import Manifest
    from lance_spark.table.open import Reference
    from lance_spark.table.operations.base import Operation
    from lance_spark.table.refs.branches import BranchRepair

MetadataValues = Mapping[str, str | None]


class BulkCommitResult(TypedDict):
    """The result of `Dataset.commit_batch`: the version, and the transaction that made it."""

    dataset: Dataset
    merged: Transaction


@prefixes_errors
class Dataset:
    """One version of a Lance table: scan, take and change it, list its history. Immutable.

    Made by `open_dataset` and `write_dataset`. Later commits are not visible. Each method that
    changes the table commits a new version and returns it as a new `Dataset`.

    Names, arguments and results are as in pylance's `LanceDataset`, if pylance has them.

    Examples
    --------
    >>> dataset = lance_spark.open_dataset("/data/t.lance")
    >>> dataset.to_table(["id", "name"], filter="id > 5")
    >>> dataset = dataset.delete("id = 7")
    """

    def __init__(self, table: OpenTable, storage_options: Mapping[str, str] | None = None) -> None:
        # Internal: other modules of this project use it as well, users must not.
        self._table = table
        self._storage_options = dict(storage_options or {})
        self._reader = VersionReader(table, self._storage_options)
        self._io_before = table.store.io_counts.stats()

    def __repr__(self) -> str:
        return repr(self._reader)

    def __len__(self) -> int:
        """Return the number of live rows."""
        return self.count_rows()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all rows as a stream of Arrow's PyCapsule interface."""
        return self.scanner().__arrow_c_stream__(requested_schema)

    # The version

    @property
    def uri(self) -> str:
        """URI or path of the root of the table, or of the branch."""
        return self._table.store.uri

    @property
    def version(self) -> int:
        """Number of the version."""
        return self._table.version

    @property
    def branch(self) -> str | None:
        """Name of the branch of the version; None for the main branch."""
        return self._table.branch

    @property
    def latest_version(self) -> int:
        """Number of the branch's newest version, which is looked up."""
        return versions.latest(self._table.store).version

    @property
    def data_storage_version(self) -> str:
        """File version of new data files, for example ``2.2``."""
        major, minor = self._table.manifest.data_storage_version
        return f"{major}.{minor}"

    @property
    def initial_storage_options(self) -> dict[str, str] | None:
        """The storage options that the table was opened with, with secrets; None without any."""
        return dict(self._storage_options) or None

    def latest_storage_options(self) -> dict[str, str] | None:
        """Return the storage options in use, with secrets; None without any.

        Credentials of a namespace are renewed before they expire.
        """
        return dict(self._table.store.options) or None

    # Columns and metadata

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the table, with the metadata of the schema and of its fields."""
        return extended_schema(self._table.schema.to_arrow())

    @property
    def lance_schema(self) -> LanceSchema:
        """The fields of the table with their ids."""
        from lance_spark.dataset.lance_schema import LanceSchema

        return LanceSchema(self._table.schema)

    def schema_of(
        self,
        columns: Sequence[str] | None = None,
        **keywords: Unpack[ProjectionKeywords],
    ) -> pa.Schema:
        """Return the Arrow schema of a read with these arguments; see `scanner`."""
        from lance_spark.dataset.scan_request import child_columns

        read = self._reader.select(columns, **checked(ProjectionKeywords, keywords)).to_arrow()
        children = child_columns(columns, self._table.schema)
        return extended_schema(read if children is None else children.schema(read))

    @property
    def max_field_id(self) -> int:
        """The largest id of a field that the manifest names; -1 without fields."""
        from lance_spark.table.manifest.manifest import max_field_id

        return int(max_field_id(self._table.manifest.to_proto()))

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether rows keep their ids when they are moved."""
        return bool(self._table.manifest.flags.stable_row_ids)

    def config(self) -> dict[str, str]:
        """Return the configuration of the table."""
        return self._table.manifest.config

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the table."""
        return self._table.manifest.table_metadata

    @property
    def schema_metadata(self) -> dict[str, str]:
        """Metadata of the schema."""
        metadata = self._table.manifest.schema_metadata
        return {key: value.decode(errors="replace") for key, value in metadata.items()}

    def base_paths(self) -> dict[int, BasePath]:
        """Return the base paths of the version, by id."""
        return dict(self._table.manifest.base_paths)

    # Scans and searches

    @parameters_of(scan_request)
    def scanner(self, *arguments: Any, **keywords: Any) -> Scanner:
        """Return a scanner, which reads rows as batches, as a table or as a reader.

        With a full-text query, the rows with the greatest scores are first, and there is another
        column, ``_score``. With `nearest`, the nearest rows are first, and there is another column,
        ``_distance``.

        Returns
        -------
        Scanner

        Raises
        ------
        InvalidInputError
            A column or fragment does not exist, a number is out of range, or arguments cannot be
            combined.
        UnsupportedFeatureError
            An argument is not supported.

        Examples
        --------
        >>> dataset.scanner(["id"], filter="id > 5", limit=10).to_table()
        >>> dataset.scanner({"twice": "id * 2"}, order_by=["id"]).to_reader()
        """
        from lance_spark.dataset.scanner import Scanner

        return Scanner(self._reader, scan_request(self._reader, *arguments, **keywords))

    @parameters_of(scan_request)
    def to_table(self, *arguments: Any, **keywords: Any) -> pa.Table:
        """Return the rows as an Arrow table.

        The parameters and errors are those of `scanner`.
        """
        return self.scanner(*arguments, **keywords).to_table()

    @parameters_of(scan_request)
    def to_batches(self, *arguments: Any, **keywords: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches, in the table's order.

        The parameters and errors are those of `scanner`.
        """
        yield from self.scanner(*arguments, **keywords).to_batches()

    def count_rows(
        self,
        filter: Filter | None = None,
        **keywords: Unpack[CountKeywords],
    ) -> int:
        """Return the number of live rows that meet conditions; of all live rows without conditions.

        The number of all rows is that of the manifest, without data files. Conditions read the
        rows that indexes leave, and only the columns of the conditions. `IS NULL` and `IS NOT NULL`
        alone are answered by indexes that know it, without rows. So are comparisons and sets of
        values that are not floats, and `AND` and `OR` of them, if all their columns have a BTREE or
        BITMAP index, which leaves few rows, and the table has no stable row ids.

        Parameters
        ----------
        filter
            As in `scanner`.

        Raises
        ------
        InvalidInputError
            A condition is not valid, or cannot be computed for a row.
        CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
        """
        return count_rows(self._reader, filter, **keywords)

    @also_takes(scan_request, others=False, leaves_out=["limit"])
    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Return the first rows.

        Parameters
        ----------
        num_rows : int
            Maximum number of rows.

        Raises
        ------
        InvalidInputError
            `num_rows` is negative; or errors of `to_table`.
        CorruptFileError, CorruptTableError, StorageError
        """
        return self.to_table(limit=num_rows, **options)

    def slice(self, start: int, end: int, columns: Columns | None = None) -> pa.Table:
        """Return the rows at some positions of the table's order. Deleted rows are not counted.

        Parameters
        ----------
        start : int
            Position of the first row, from 0 on.
        end : int
            Position after the last row. Positions after the end of the table have no rows.
        columns : sequence of str or mapping, optional
            As in `to_table`.

        Raises
        ------
        InvalidInputError
            `start` is negative, or `end` is less than `start`.
        CorruptFileError, CorruptTableError, StorageError
        """
        check_least("start", start, 0)
        if end < start:
            raise InvalidInputError(f"end must be at least start, {start}, not {end}")
        return self.to_table(columns, limit=end - start, offset=start)

    def plan(
        self, columns: Sequence[str] | None = None, **keywords: Unpack[PlanKeywords]
    ) -> list[ScanTask]:
        """Split a scan into tasks that can be pickled and run by workers.

        Parameters
        ----------
        columns : sequence of str, optional
            As in `scanner`.

        Returns
        -------
        list of ScanTask
            The tasks in the table's order; empty if no rows can match. `ScanTask.batches` yields
            the record batches of a task.

        Raises
        ------
        InvalidInputError
            A column or fragment does not exist, or a number is not positive.
        CorruptTableError, CorruptFileError, StorageError
        """
        return planned(self._reader, columns, **keywords).tasks

    def explain(
        self, columns: Sequence[str] | None = None, **keywords: Unpack[ExplainKeywords]
    ) -> str:
        """Return a text that says what a scan reads: tasks, fragments, rows after pruning, bytes.

        Of a vector search, it says which index is searched, how many of its partitions and vectors,
        and which rows are measured without the index. If there are fewer than `k` live rows in
        these partitions, the search reads more partitions.

        Parameters
        ----------
        columns : sequence of str, optional
            As in `scanner`.

        Examples
        --------
        >>> print(dataset.explain(nearest={"column": "v", "q": q, "k": 5}))  # doctest: +SKIP
        Vector search of /data/t.lance, version 3
          column: v, metric l2, k 5
          index: v_idx (VECTOR): 90000 rows, IVF_PQ l2, 20 of 300 partitions, 5,722 rows measured
        """
        from lance_spark.dataset.scanner import explained

        return explained(self._reader, columns, **keywords)

    def arrow_dataset(self) -> ArrowDataset:
        """Return this version as a `pyarrow.dataset.Dataset`.

        Engines that read such a dataset push columns and filters down to it: DuckDB, and Polars by
        `polars.scan_pyarrow_dataset`.

        Examples
        --------
        >>> table = dataset.arrow_dataset()
        >>> duckdb.sql("SELECT name FROM table WHERE id = 5")  # doctest: +SKIP
        """
        from lance_spark.dataset.arrow_dataset import ArrowDataset

        return ArrowDataset(self)

    def sql(self, sql: str) -> SqlQueryBuilder:
        """Query this version in SQL. Needs DuckDB: ``lance-spark[sql]``.

        The table has the name ``dataset``. The language is DuckDB's, that of pylance DataFusion's.

        Parameters
        ----------
        sql : str
            A `SELECT` statement.

        Returns
        -------
        SqlQueryBuilder

        Examples
        --------
        >>> query = dataset.sql("SELECT name, count(*) FROM dataset GROUP BY name").build()
        >>> query.to_batch_records()
        """
        from lance_spark.dataset.sql import SqlQueryBuilder

        return SqlQueryBuilder(self, sql)

    @also_takes(scan_request)
    def to_pandas(
        self,
        columns: Columns | None = None,
        filter: Filter | None = None,
        limit: int | None = None,
        offset: int | None = None,
        nearest: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        *,
        blob_mode: str = "lazy",
        **options: Any,
    ) -> pd.DataFrame:
        """Return the rows as a DataFrame of pandas.

        Parameters
        ----------
        blob_mode : str
            Content of blob columns: ``lazy`` (`BlobFile` objects, see `take_blobs`), ``bytes`` or
            ``descriptions`` (positions and sizes of the bytes).
        **options
            Arguments of `pyarrow.Table.to_pandas`.

        Raises
        ------
        InvalidInputError
            `blob_mode` is unknown, pandas is not installed; or errors of `to_table`.
        CorruptFileError, CorruptTableError, StorageError

        Examples
        --------
        >>> frame = dataset.to_pandas(["id", "name"], filter="id > 5", split_blocks=True)
        """
        from lance_spark.dataset.frames import parted

        scan, others = parted(options, self.scanner)
        scanner = self.scanner(columns, filter, limit, offset, nearest, batch_size, **scan)
        return scanner.to_pandas(blob_mode=blob_mode, **others)

    def fresh(self) -> FreshRows:
        """Return the newest version of this branch together with the rows of its MemWAL.

        A read of a `Dataset` does not return rows that were written to a MemWAL (`mem_wal_writer`)
        and not compacted into the table yet. A fresh read does. Nothing is claimed: writers are not
        disturbed.

        Returns
        -------
        FreshRows
            With the methods of `Dataset` that read rows: `to_table`, `to_batches`, `count_rows` and
            `plan`. For a table without MemWAL, the rows of its newest version.

        Raises
        ------
        CorruptTableError, CorruptFileError, UnsupportedFeatureError, StorageError

        Examples
        --------
        >>> dataset.fresh().to_table(filter="id = 7")
        """
        from lance_spark.dataset.fresh import FreshRows

        return FreshRows(self)

    def lsm_scanner(self) -> LsmScanner:
        """Return a scanner of the rows of `fresh`, with pylance's methods.

        Raises
        ------
        CorruptTableError, CorruptFileError, UnsupportedFeatureError, StorageError
        """
        from lance_spark.dataset.fresh import LsmScanner

        return LsmScanner(self.fresh())

    # Rows by position, by row id, at random, in memory

    def take(
        self,
        indices: Sequence[int],
        columns: Columns | None = None,
        **keywords: Unpack[BlobKeywords],
    ) -> pa.Table:
        """Return rows by their positions in the table's order. Deleted rows are not counted.

        This object keeps up to 64 data files open for the next take.

        Parameters
        ----------
        indices : sequence of int, or integer array
            Positions from 0 on, in any order, possibly repeated.
        columns : sequence of str or mapping, optional
            As in `scanner`. A hidden column, such as ``_rowid``, is returned as often as it is
            named, other columns once.

        Returns
        -------
        Table
            One row for each position, in the order of the positions.

        Raises
        ------
        InvalidInputError
            A position is out of range, or a column does not exist.
        CorruptTableError, CorruptFileError, StorageError
        """
        from lance_spark.dataset.takes import take

        with turn(local=self._table.store.is_local):
            return take(self._reader, indices, columns, keywords.get("blob_handling"))

    def take_rows(
        self,
        row_ids: Sequence[int],
        columns: Sequence[str] | None = None,
        **keywords: Unpack[BlobKeywords],
    ) -> pa.Table:
        """Return rows by their row ids (``_rowid``). Ids without a live row are left out.

        In tables with stable row ids, the first call reads the ids of all rows and keeps them in
        this object.

        Parameters
        ----------
        row_ids : sequence of int, or integer array
            Ids in any order, possibly repeated.
        columns
            As in `take`.

        Returns
        -------
        Table
            One row for each id that has a live row, in the order of the ids.

        Raises
        ------
        InvalidInputError
            A column does not exist.
        CorruptTableError, CorruptFileError, StorageError
        """
        from lance_spark.dataset.takes import take_ids

        return take_ids(self._reader, row_ids, columns, keywords.get("blob_handling"))

    def sample(
        self,
        num_rows: int,
        columns: Columns | None = None,
        randomize_order: bool = True,
        **keywords: Unpack[BlobKeywords],
    ) -> pa.Table:
        """Return random rows, each at most once.

        The rows are chosen by `random.sample`, so that `random.seed` makes them the same again.

        Parameters
        ----------
        num_rows : int
            Number of rows.
        columns : sequence of str or mapping, optional
            As in `take`.
        randomize_order : bool
            Whether the order of the rows is random, too. The table's order is read faster.

        Raises
        ------
        InvalidInputError
            The table has fewer rows, or `num_rows` is negative.
        CorruptFileError, CorruptTableError, StorageError
        """
        check_least("num_rows", num_rows, 0)
        total = self.count_rows()
        if num_rows > total:
            raise InvalidInputError(f"num_rows must be at most {total}, not {num_rows}")
        positions = random.sample(range(total), num_rows)
        return self.take(positions if randomize_order else sorted(positions), columns, **keywords)

    def sort_by(self, sorting: str | list[tuple[str, str]], **options: Any) -> pads.InMemoryDataset:
        """Return all rows, sorted in memory; see `pyarrow.dataset.Dataset.sort_by`.

        Parameters
        ----------
        sorting : str or list of (name, order)
            Names of columns, each with ``ascending`` or ``descending``.
        **options
            Options of pyarrow's `SortOptions`.

        Returns
        -------
        pyarrow.dataset.InMemoryDataset
        """
        from lance_spark.dataset.takes import in_memory

        return in_memory(self.to_table()).sort_by(sorting, **options)

    def join(
        self,
        right_dataset: Any,
        keys: str | list[str],
        right_keys: str | list[str] | None = None,
        join_type: str = "left outer",
        left_suffix: str | None = None,
        right_suffix: str | None = None,
        coalesce_keys: bool = True,
        use_threads: bool = True,
    ) -> pads.InMemoryDataset:
        """Join all rows with other rows in memory; see `pyarrow.dataset.Dataset.join`.

        Parameters
        ----------
        right_dataset : Dataset, pyarrow.dataset.Dataset, Table, ...
            The other rows, in any form that `write_dataset` takes.
        keys, right_keys, join_type, left_suffix, right_suffix, coalesce_keys, use_threads
            As in pyarrow.

        Returns
        -------
        pyarrow.dataset.InMemoryDataset

        Examples
        --------
        >>> orders.join(customers, "customer_id", join_type="inner").to_table()
        """
        from lance_spark.dataset.takes import in_memory

        return in_memory(self.to_table()).join(
            in_memory(right_dataset),
            keys,
            right_keys=right_keys,
            join_type=join_type,
            left_suffix=left_suffix,
            right_suffix=right_suffix,
            coalesce_keys=coalesce_keys,
            use_threads=use_threads,
        )

    def join_asof(
        self,
        right_dataset: Any,
        on: str,
        by: str | list[str],
        tolerance: int,
        right_on: str | list[str] | None = None,
        right_by: str | list[str] | None = None,
    ) -> pads.InMemoryDataset:
        """Join with the nearest row in time; see `pyarrow.dataset.Dataset.join_asof`.

        Both sides are read into memory, and must be sorted by `on`.
        """
        from lance_spark.dataset.takes import in_memory

        right = in_memory(right_dataset)
        return in_memory(self.to_table()).join_asof(right, on, by, tolerance, right_on, right_by)

    def remap_row_addrs(self, addrs: pa.Array) -> pa.Array | None:
        """Return the addresses of rows after the compactions that this version records.

        Only compactions with `defer_index_remap` are recorded, until indexes have followed them.

        Parameters
        ----------
        addrs : uint64 array
            Addresses of rows in older versions: fragment id << 32 | offset.

        Returns
        -------
        uint64 array or None
            The new addresses, null for rows that were deleted; an address of a fragment that was
            not compacted stays. None if no compaction is recorded.

        Raises
        ------
        InvalidInputError
            The array has another type.
        CorruptTableError, StorageError
        """
        from lance_spark.dataset.takes import remapped

        return remapped(self._table, addrs)

    # Blobs

    def take_blobs(
        self,
        blob_column: str,
        ids: Sequence[int] | None = None,
        addresses: Sequence[int] | None = None,
        indices: Sequence[int] | None = None,
        *,
        buffer_size: int = DEFAULT_BUFFER_SIZE,
    ) -> list[BlobFile | None]:
        """Return blobs as file objects that read only the requested parts.

        Parameters
        ----------
        blob_column : str
            Name of a blob column, or dotted path of one inside structs.
        ids, addresses, indices : sequence of int
            The rows, by exactly one of: row ids, row addresses (fragment id << 32 | offset), or
            positions in the table's order.
        buffer_size : int
            Bytes that a sequential read of a file requests at once; 0 for no buffering.

        Returns
        -------
        list of BlobFile or None
            One entry for each row, in the given order; None for a null.

        Raises
        ------
        InvalidInputError
            The column is not a blob column, a row does not exist or is deleted, or not exactly one
            of `ids`, `addresses` and `indices` is given.
        CorruptTableError, CorruptFileError, StorageError
        """
        from lance_spark.dataset.blobs import open_blobs

        rows = {"ids": ids, "addresses": addresses, "indices": indices}
        return open_blobs(self._reader, blob_column, rows, buffer_size)

    def read_blobs(
        self,
        blob_column: str,
        ids: Sequence[int] | None = None,
        addresses: Sequence[int] | None = None,
        indices: Sequence[int] | None = None,
        *,
        io_buffer_size: int | None = None,
        preserve_order: bool | None = None,
    ) -> list[tuple[int, bytes | None]]:
        """Return blobs as bytes, read together.

        Parameters
        ----------
        blob_column, ids, addresses, indices
            As in `take_blobs`.
        io_buffer_size, preserve_order
            No effect: bytes are read in one step, and always in the given order.

        Returns
        -------
        list of (int, bytes or None)
            Row address and bytes of each row; None for a null.

        Raises
        ------
        InvalidInputError
            As in `take_blobs`.
        CorruptTableError, CorruptFileError, StorageError
        """
        from lance_spark.dataset.blobs import read_blobs

        rows = {"ids": ids, "addresses": addresses, "indices": indices}
        return read_blobs(self._reader, blob_column, rows)

    def read_blob_ranges(
        self,
        blob_column: str,
        requests: Sequence[tuple[int, int, int]],
        *,
        selector: Literal["ids", "addresses", "indices"],
        io_buffer_size: int | None = None,
        preserve_order: bool | None = None,
    ) -> list[tuple[int, int, bytes | None]]:
        """Return ranges of the bytes of blobs. The ranges of one blob are read together.

        Parameters
        ----------
        blob_column : str
            As in `take_blobs`.
        requests : sequence of (int, int, int)
            Row, offset in its blob, and length.
        selector : str
            How rows are given: ``ids``, ``addresses`` or ``indices``; see `take_blobs`.
        io_buffer_size, preserve_order
            No effect: results are always in the order of the requests.

        Returns
        -------
        list of (int, int, bytes or None)
            For each request its number, the row address, and the bytes; None for a null.

        Raises
        ------
        InvalidInputError
            A range lies outside its blob; or as in `take_blobs`.
        CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> dataset.read_blob_ranges("image", [(7, 0, 1024)], selector="indices")
        """
        from lance_spark.dataset.blobs import read_ranges

        return read_ranges(self._reader, blob_column, requests, selector)

    # Changes of rows

    @pylance_keywords(unused=UNUSED, refused=REFUSED)
    @reports_progress
    def insert(
        self,
        data: Any,
        *,
        mode: Mode = "append",
        **keywords: Unpack[InsertKeywords],
    ) -> Self:
        """Write rows to this table in one commit; see `write_dataset`.

        Parameters
        ----------
        data : Table, RecordBatch, RecordBatchReader, DataFrame of pandas, ...
            The rows, as `write_dataset` takes them.
        mode : str
            ``append`` or ``overwrite``; ``create`` is an error, because the table exists.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        SchemaMismatchError, CommitConflictError, InvalidInputError, InvalidOptionError,
        UnsupportedTypeError, StorageError

        Examples
        --------
        >>> dataset = dataset.insert(pa.table({"id": [4]}))
        """
        from lance_spark.dataset.writing import write_rows

        keywords.setdefault("storage_options", self._storage_options)
        return self._committed(write_rows(data, self.uri, mode, **keywords))

    @pylance_keywords(renamed={"predicate": "filters"})
    @reports_progress
    def delete(
        self,
        filters: str | pc.Expression | Iterable[Sequence[Any]] | None = None,
        *,
        ids: Sequence[int] | None = None,
        addresses: Sequence[int] | None = None,
        indices: Sequence[int] | None = None,
        **keywords: Unpack[RetryProgressKeywords],
    ) -> Self:
        """Delete rows in one commit, by writing deletion files. Data files do not change.

        Parameters
        ----------
        filters : str, expression of Arrow, or iterable of (column, operator, value), optional
            The text of a ``WHERE`` clause with Spark's default settings
            (docs/reference/predicates.md), or conditions as in `to_batches`; an empty list selects
            all rows.
        ids, addresses, indices : sequence of int, optional
            Delete only rows among these: at most one of row ids, row addresses (fragment id << 32 |
            offset) and positions in the table's order. Deleted rows are ignored. Addresses and
            positions refer to this version: they do not follow a row that another client moved.

        Returns
        -------
        Dataset
            The version that was committed, even if no row matched.

        Raises
        ------
        InvalidInputError
            No rows are given, a filter is not valid, or a row does not exist.
        CommitConflictError
            Another client committed an incompatible change; for example, it moved rows that are
            given by address.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.rows.delete import delete_rows
        from lance_spark.mutations.rows.row_selector import RowSelector

        rows = None
        if not (ids is addresses is indices is None):
            rows = RowSelector(self._table, ids=ids, addresses=addresses, indices=indices)
        table = delete_rows(
            self._table,
            filters,
            rows,
            CommitOptions.of(**keywords),
        )
        return self._committed(table)

    @pylance_keywords(
        renamed={"where": "filters"},
        refused={"data_storage_version": ((), "new files have the file version of the table")},
    )
    @reports_progress
    def update(
        self,
        updates: Mapping[str, Any],
        filters: str | pc.Expression | Iterable[Sequence[Any]] | None = None,
        *,
        mode: Literal["rows", "columns", "overlay"] = "rows",
        **keywords: Unpack[RetryProgressKeywords],
    ) -> Self:
        """Update the values of rows in one commit.

        Parameters
        ----------
        updates : mapping of str to value, pa.Scalar or callable
            New values by the name of a column, or of a child of a struct (``s.child``). Put
            backticks around names with special characters. A callable receives the rows to update
            as a record batch with all columns, and returns one value per row. If a child of a null
            struct is set, the struct becomes non-null and its other children are null.
        filters : str, expression of Arrow, or iterable of (column, operator, value), optional
            As in `delete`; all rows by default.
        mode : str
            ``rows``: the update writes the new rows to new fragments, and deletes the old rows.
            ``columns``: the rows stay in their fragments. For each fragment with a row to update,
            the update writes a new file with all values of the updated columns. ``overlay``: the
            rows stay, and the update writes their new values alone, to overlay files. Other
            clients do not open the table then, unless they allow overlays, until a compaction has
            removed the overlays.

        Returns
        -------
        Dataset
            The version that was committed, even if no row matched.

        Raises
        ------
        InvalidInputError, SchemaMismatchError
            A filter is not valid, a column does not exist, or a value does not fit the type of its
            column.
        CommitConflictError
            Another client committed an incompatible change.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.rows.update import update_rows

        table = update_rows(
            self._table,
            updates,
            filters,
            mode,
            CommitOptions.of(**keywords),
        )
        return self._committed(table)

    def merge_insert(self, on: str | Iterable[str] | None = None) -> MergeInsertBuilder:
        """Return a builder of a merge: updates, inserts and deletes in one commit.

        A null key matches no row; within structs and lists, a null equals a null. The source is
        held in memory; `LanceTable.merge` merges by Spark, with expressions for single columns.

        Parameters
        ----------
        on : str or iterable of str, optional
            Columns by which rows of the source match rows of the table; the primary key of the
            table by default.

        Returns
        -------
        MergeInsertBuilder

        Raises
        ------
        InvalidInputError
            A column does not exist, or no column is given and the table has no primary key.

        Examples
        --------
        >>> merge = dataset.merge_insert("id").when_matched_update_all()
        >>> result = merge.when_not_matched_insert_all().execute(new_rows)
        >>> dataset = result["dataset"]
        """
        from lance_spark.dataset.merge import MergeInsertBuilder, key_names

        return MergeInsertBuilder(self, key_names(self._table.schema, on))

    def truncate_table(self) -> Self:
        """Delete all rows in one commit. Columns, indexes and old versions stay.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        CommitConflictError, UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.rows.delete import delete_rows

        options = CommitOptions()
        return self._committed(delete_rows(self._table, [], None, options, text="true"))

    # Changes of columns

    @pylance_keywords(renamed={"reader_schema": "output_schema"})
    @reports_progress
    def add_columns(
        self,
        transforms: Any,
        read_columns: Sequence[str] | None = None,
        output_schema: pa.Schema | None = None,
        batch_size: int | None = None,
        **keywords: Unpack[RetryProgressKeywords],
    ) -> Self:
        """Add columns to the existing rows, in one commit.

        Parameters
        ----------
        transforms : mapping, callable, pa.Field, list of pa.Field, or pa.Schema
            The new columns, in one of these forms:

            - a mapping of names to constants (Python values or `pa.Scalar`) or to functions, which
              receive a record batch and return one value per row;
            - a function that receives a record batch and returns a record batch with all new
              columns, or a DataFrame of pandas; `batch_udf` gives it a checkpoint;
            - fields or a schema: columns with only nulls, for which no file is written. For an
              existing struct, its missing children are added.
        read_columns : sequence of str, optional
            The columns that functions receive; all by default. Blobs are passed as bytes. Deleted
            rows are not passed.
        output_schema : pa.Schema, optional
            Types of the new columns. By default they are nullable and have the type of their
            values; the first rows decide for functions.
        batch_size : int, optional
            Maximum number of rows of a batch; 65,536 by default.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            A column exists already, or the values do not fit the rows or types.
        UnsupportedFeatureError, UnsupportedTypeError
            This release cannot write a feature of the table, or a type.
        CommitConflictError, CorruptFileError, CorruptTableError, StorageError

        Examples
        --------
        >>> dataset = dataset.add_columns({"source": "import", "n": lambda batch: batch["id"]})
        """
        from lance_spark.mutations.columns.add import add_columns

        options = CommitOptions.of(**keywords)
        table = add_columns(
            self._table, transforms, read_columns, output_schema, batch_size, options=options
        )
        return self._committed(table)

    @reports_progress
    def merge(
        self,
        data_obj: Any,
        left_on: str,
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        **keywords: Unpack[RetryProgressKeywords],
    ) -> Self:
        """Add the columns of other rows to the rows with the same key, in one commit.

        Rows without a match get nulls. Of several other rows with one key, the last one counts. A
        null matches a null. The other rows are held in memory; `LanceTable.add_columns_from` joins
        by Spark.

        Parameters
        ----------
        data_obj : Table, RecordBatch, RecordBatchReader, DataFrame of pandas, ...
            The other rows, as `write_dataset` takes them.
        left_on : str
            A top-level column of this table.
        right_on : str, optional
            A column of the other rows, by default of the same name. It is not added.
        schema : pa.Schema, optional
            As in `write_dataset`.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            A column is not found or exists already, the keys have different types, or a column that
            must not be null has no value for some row.
        UnsupportedFeatureError, UnsupportedTypeError, CommitConflictError, CorruptFileError,
        CorruptTableError, StorageError

        Examples
        --------
        >>> dataset = dataset.merge(pa.table({"id": [1, 2], "score": [0.5, 0.25]}), "id")
        """
        from lance_spark.dataset.merge import add_joined_columns

        options = CommitOptions.of(**keywords)
        return self._committed(
            add_joined_columns(self._table, data_obj, left_on, right_on, schema, options)
        )

    def drop_columns(
        self,
        columns: Sequence[str],
        **keywords: Unpack[RetryKeywords],
    ) -> Self:
        """Drop columns and the indexes on them, in one commit. Data files are not rewritten.

        Parameters
        ----------
        columns : sequence of str
            Names, or dotted paths of children of structs. A struct is dropped with its last child.
            An empty sequence commits a version with the same columns, as in pylance.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            A column does not exist, or no column would remain.
        UnsupportedFeatureError, CommitConflictError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.columns.alter import drop_columns

        options = CommitOptions.of(**keywords)
        return self._committed(drop_columns(self._table, columns, options))

    @reports_progress
    def alter_columns(
        self,
        *alterations: Mapping[str, Any],
        **keywords: Unpack[RetryProgressKeywords],
    ) -> Self:
        """Rename columns, change their types or nullability, in one commit.

        Parameters
        ----------
        *alterations : mapping
            ``path`` (name of a column, or dotted path of a child), and one or more of ``name``,
            ``nullable`` and ``data_type``. A new name or nullability changes only the schema. A new
            type must belong to the same family (integers, floats, strings, ...); the values of the
            column are rewritten.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            A column does not exist, a column that becomes non-nullable has nulls, a value does not
            fit the new type, or a column with a new type has an index.
        UnsupportedFeatureError, CommitConflictError, CorruptFileError, CorruptTableError,
        StorageError

        Examples
        --------
        >>> alterations = {"path": "x", "name": "y"}, {"path": "n", "data_type": pa.int64()}
        >>> dataset = dataset.alter_columns(*alterations)
        """
        from lance_spark.mutations.columns.alter import alter_columns

        options = CommitOptions.of(**keywords)
        return self._committed(alter_columns(self._table, alterations, options))

    # Changes of configuration, metadata and base paths

    def update_config(
        self,
        values: MetadataValues,
        *,
        replace: bool = False,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Set keys of the table's configuration.

        Parameters
        ----------
        values : mapping of str to str or None
            The new values; None deletes a key. An empty mapping commits a version with the same
            configuration, as in pylance.
        replace : bool
            Whether to delete all other keys.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        CommitConflictError
            Another client set or deleted the same keys.
        InvalidInputError, UnsupportedFeatureError, CorruptTableError, StorageError
        """
        options = CommitOptions.of(**keywords)
        return self._update(options, config=values, replace=replace)

    def delete_config_keys(
        self,
        keys: Sequence[str],
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Delete keys of the table's configuration; see `update_config`."""
        values: MetadataValues = dict.fromkeys(keys)
        options = CommitOptions.of(**keywords)
        return self._update(options, config=values)

    def update_metadata(
        self,
        values: MetadataValues,
        *,
        replace: bool = False,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Set keys of the table's metadata; see `update_config`."""
        options = CommitOptions.of(**keywords)
        return self._update(options, table_metadata=values, replace=replace)

    def update_schema_metadata(
        self,
        values: MetadataValues,
        *,
        replace: bool = False,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Set keys of the schema's metadata; see `update_config`.

        Concurrent changes of the schema's metadata are conflicts, even if their keys differ.
        """
        options = CommitOptions.of(**keywords)
        return self._update(options, schema_metadata=values, replace=replace)

    def replace_schema_metadata(self, new_metadata: Mapping[str, str]) -> Self:
        """Replace the metadata of the schema; see `update_schema_metadata`."""
        return self.update_schema_metadata(new_metadata, replace=True)

    def update_field_metadata(
        self,
        field_updates: Mapping[str, MetadataValues],
        *,
        replace: bool = False,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Set keys of the metadata of columns.

        Parameters
        ----------
        field_updates : mapping of str to mapping of str to str or None
            The new values by the name of a column, or the dotted path of a child of a struct; None
            deletes a key.
        replace : bool
            Whether to delete all other keys of these columns.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        CommitConflictError
            Another client changed the metadata of the same columns.
        InvalidInputError
            A column does not exist.
        UnsupportedFeatureError, CorruptTableError, StorageError
        """
        options = CommitOptions.of(**keywords)
        return self._update(options, field_metadata=field_updates, replace=replace)

    def replace_field_metadata(self, field_name: str, new_metadata: Mapping[str, str]) -> Self:
        """Replace the metadata of a column; see `update_field_metadata`."""
        return self.update_field_metadata({field_name: new_metadata}, replace=True)

    def add_bases(
        self,
        new_bases: Iterable[BaseLike],
        transaction_properties: Mapping[str, str] | None = None,
        **keywords: Unpack[MessageRetryKeywords],
    ) -> Self:
        """Add base paths: folders outside the table's root for files of the table.

        Parameters
        ----------
        new_bases : iterable of BasePath
            pylance's `DatasetBasePath` is accepted as well. A base path without an id, or with the
            id 0, gets a new id. An empty iterable commits a version with the same base paths, as in
            pylance.
        transaction_properties : mapping of str to str, optional
            Stored in the transaction.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            The table has a base path with the same name, path or id.
        CommitConflictError
            Another client added such a base path.
        UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.metadata_updates import add_bases

        options = CommitOptions.of(transaction_properties=transaction_properties, **keywords)
        return self._committed(add_bases(self._table, new_bases, options))

    def repoint_base(
        self,
        base: int | str,
        path: str,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Change the path of a base path, after its files were copied to the new path.

        Only the new version and its successors on this branch use the new path: older versions and
        other branches keep the old one. No client should write to the base path meanwhile: pylance
        does not notice that its new files belong to the new path.

        Parameters
        ----------
        base : int or str
            Id or name of the base path.
        path : str
            The new path or URI. Its store uses the options given by `base_store_params` or
            ``base_<id>.<name>`` when the table was opened, or else the options of the table.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            The base path does not exist, or another base path has the new path.
        MissingFileError
            A data file, deletion file or index of this version does not exist at the new path, or a
            data file has another size.
        CommitConflictError
            Another client changed base paths, or changed the table repeatedly.
        UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.metadata_updates import repoint_base

        options = CommitOptions.of(**keywords)
        return self._committed(repoint_base(self._table, base, path, options))

    def with_target_bases(
        self, target_bases: Sequence[str] | None = None, *, target_all_bases: bool | None = None
    ) -> Self:
        """Return the same version, with the base paths that its mutations write new data files to.

        Parameters
        ----------
        target_bases : sequence of str, optional
            Names or paths of base paths; the path of the table stands for its own root. New data
            files go to them in turn. By default, rewritten rows and columns of a fragment stay in
            its base path, and new rows go to the table's root.
        target_all_bases : bool, optional
            True: new data files go to the table's root and all base paths in turn; False: to all
            base paths in turn.

        Returns
        -------
        Dataset

        Raises
        ------
        InvalidInputError, InvalidOptionError
            Both arguments are given, or one has a wrong type. Mutations raise it if a base path
            does not exist.
        """
        names = (
            target_bases
            if target_bases is None or isinstance(target_bases, str)
            else tuple(target_bases)
        )
        targets = TargetBases(names, target_all_bases)  # type: ignore[arg-type]
        return type(self)(replace(self._table, target_bases=targets), self._storage_options)

    # Indexes

    @property
    def has_index(self) -> bool:
        """Whether the version has an index."""
        from lance_spark.table.indexes.sections import read_section

        return bool(read_section(self._table.manifest).indices)

    def list_indices(self) -> list[dict[str, Any]]:
        """Return the segments of all indexes, in the form of pylance.

        Returns
        -------
        list of dict
            Keys: name, type, uuid, fields (names), version (on which it was built), fragment_ids
            (set of the covered fragments; None if unknown), base_id.

        Raises
        ------
        CorruptTableError, StorageError
        """
        from lance_spark.mutations.indexes.existing import list_indices

        return list_indices(self._table)

    def describe_indices(self) -> list[IndexDescription]:
        """Return all indexes with their segments and the numbers of rows that they cover.

        Raises
        ------
        CorruptTableError, StorageError
        """
        from lance_spark.mutations.indexes.existing import describe_indices

        return describe_indices(self._table)

    @pylance_keywords(renamed={"index_name": "name"})
    def index_statistics(self, name: str) -> dict[str, Any]:
        """Return numbers about an index, in the form of pylance.

        Parameters
        ----------
        name : str
            Name of the index.

        Returns
        -------
        dict
            Keys: index_type, name, num_indices (segments), num_indexed_fragments,
            num_indexed_rows, num_unindexed_fragments, num_unindexed_rows, and indices: a dict for
            each segment, with its index_type and uuid. That of a segment of a vector index has
            metric_type, num_partitions, partitions (a dict with the size of each), loss (sum of
            the distances of the vectors from their centroids) and sub_index (how vectors are
            stored).

        Raises
        ------
        InvalidInputError
            The index does not exist.
        CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> dataset.index_statistics("v_idx")["num_unindexed_rows"]  # doctest: +SKIP
        0
        """
        from lance_spark.mutations.indexes.existing import index_statistics

        return index_statistics(self._table, name)

    @pylance_keywords(refused=REFUSED_OF_INDEXES)
    @reports_progress
    @also_takes(CreateIndexKeywords)
    @parameters_of(scalar_index)
    def create_scalar_index(self, *arguments: Any, **options: Any) -> Self:
        """Create an index of a column, which scans with filters use.

        Parameters
        ----------
        column : str
            Name of a column, or dotted path of a child of structs.
        index_type : str or IndexConfig
            ``BTREE`` (comparisons and ranges of any column of single values), ``BITMAP`` (the
            same, for columns of few different values), ``ZONEMAP`` (bounds of some thousand
            consecutive rows each: small, for values that come in order), ``BLOOMFILTER`` (equality
            with values in any order; of integers, float32, float64, strings, binary, dates, times
            and timestamps), ``LABEL_LIST`` (``array_contains``, ``arrays_overlap``, ``array_has``,
            ``array_has_any`` and ``array_has_all`` of a column of lists), ``NGRAM`` (``LIKE
            '%text%'`` and ``contains`` of a column of strings, for texts with three letters or
            digits of ASCII in a row), ``RTREE`` (``st_intersects`` and other functions of a column
            of geometries; WKT, and WKB of other geometries than points, need the package shapely,
            ``lance-spark[spatial]``), ``INVERTED`` (full-text search in a column of strings), or
            ``JSON`` (the values at one path of a JSON column, for ``json_get_int`` and its kin). No
            index takes a dictionary column. An `IndexConfig` has the type and the options.
        name : str, optional
            Name of the index; ``<column>_idx`` by default.
        replace : bool
            Whether an index of the same name and column is replaced. Otherwise it is an error.
        **options
            ``zone_size``: rows of a page of a BTREE index; 4,096 by default.
            ``rows_per_zone``: live rows of a zone of a ZONEMAP index; 8,192 by default.
            ``number_of_items``: live rows of a zone of a BLOOMFILTER index; 8,192 by default.
            ``probability``: how often, from 0 to 1, a zone without a value is searched for it by a
            BLOOMFILTER index; 0.00057 by default, for which a filter takes four bytes a row.
            ``page_size``: rows of a page of an RTREE index; 4,096 by default.
            Of a JSON index: ``path``, for example ``$.user.id``; ``target_index_type``, the type of
            the index of the values: ``BTREE`` (the default), ``BITMAP``, ``NGRAM``, ``ZONEMAP`` or
            ``BLOOMFILTER``; ``target_index_parameters``, its options.
            Of an INVERTED index, the attributes of
            `lance_spark.indexes.text.parameters.TextParameters`, such as ``with_position``, which
            phrases need; ``base_tokenizer``; ``language``; ``stem``, which needs the package
            PyStemmer (``lance-spark[text]``). ``format_version``: 1 to 3, the form of its files.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            The column, a fragment or the type does not exist; or an index has the name, and is not
            replaced or is on another column.
        InvalidOptionError
            An option is unknown or out of range.
        UnsupportedTypeError
            The index does not take columns of this type.
        CommitConflictError
            Another client changed the index, or rewrote fragments in all attempts.
        CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> dataset = dataset.create_scalar_index("user_id", "BTREE")  # doctest: +SKIP
        >>> dataset.to_table(filter="user_id = 17")  # doctest: +SKIP
        """
        return self._with_index(scalar_index(self, *arguments, **options), options)

    def _with_index(self, request: IndexRequest, options: Mapping[str, Any]) -> Self:
        from lance_spark.mutations.indexes.create import create_index

        commit = CommitOptions.of(**of_group(RetryProgressKeywords, options))
        return self._committed(create_index(self._table, request, commit))

    @pylance_keywords(refused=REFUSED_OF_VECTORS)
    @reports_progress
    @also_takes(CreateIndexKeywords)
    @parameters_of(vector_index)
    def create_index(self, *arguments: Any, **options: Any) -> Self:
        """Create an index of a column of vectors, which searches by `nearest` use.

        Vectors with null, infinite or NaN items are not in the index; with ``cosine``, vectors of
        length 0. If there is no vector, or there are fewer than codewords of ``PQ``, the index is
        empty: `optimize_indices` fills it when there are more rows.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            The column, a fragment or the type does not exist; the metric, the centroids or the
            number of sub-vectors do not belong to the column; or an index has the name, and is not
            replaced or is on another column.
        InvalidOptionError
            An option is unknown or out of range.
        UnsupportedTypeError
            The index does not take columns of this type.
        UnsupportedFeatureError
            The index has graphs, and the package faiss is missing.
        CommitConflictError
            Another client changed the index, or rewrote fragments in all attempts.
        CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> dataset = dataset.create_index(
        ...     "embedding", "IVF_PQ", num_partitions=256, num_sub_vectors=16
        ... )  # doctest: +SKIP
        """
        request = vector_index(self, *arguments, **options)
        check_vectors(request.index_type)
        return self._with_index(request, options)

    @reports_progress
    def optimize_indices(
        self,
        index_names: Sequence[str] | None = None,
        **keywords: Unpack[ExtendIndexesKeywords],
    ) -> Self:
        """Extend indexes to the fragments that they do not cover.

        Parameters
        ----------
        index_names : sequence of str, optional
            Names of indexes; by default all that this release can extend. A warning names others.

        Returns
        -------
        Dataset
            The version that was committed; this version if all rows are covered.

        Raises
        ------
        InvalidInputError
            An index does not exist, or this release cannot create its type.
        CommitConflictError
            Another client changed an index, or rewrote fragments in all attempts.
        CorruptTableError, CorruptFileError, StorageError
        """
        from lance_spark.mutations.indexes.optimize import OptimizeRequest, optimize_indices

        request = OptimizeRequest(names=index_names, **of_group(ExtendKeywords, keywords))
        options = CommitOptions.of(**of_group(RetryProgressKeywords, keywords))
        return self._committed(optimize_indices(self._table, request, options))

    def drop_index(
        self,
        name: str,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Drop an index. Its files stay until the versions that have it are cleaned up.

        Parameters
        ----------
        name : str
            Name of the index.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            The index does not exist, or other indexes depend on it.
        CommitConflictError
            Another client changed the index.
        CorruptTableError, StorageError
        """
        from lance_spark.mutations.indexes.existing import drop_index

        options = CommitOptions.of(**keywords)
        return self._committed(drop_index(self._table, name, options))

    @reports_progress
    def check_index(self, name: str, **keywords: Unpack[ProgressKeywords]) -> IndexCheck:
        """Compare an index with its column, in both directions.

        Reads the index and the column, one segment of the index after the other. Changes nothing.
        The types are those of `create_scalar_index`. Rows of fragments that the index does not
        cover, which scans read in full, are not checked.

        Parameters
        ----------
        name : str
            Name of the index.

        Returns
        -------
        IndexCheck
            How many rows the index lacks or has wrong, and the first problems. Damaged and missing
            files of the index are problems, too.

        Raises
        ------
        InvalidInputError
            The index does not exist, or its type cannot be checked.
        UnsupportedFeatureError
            The version of the index is unknown.
        CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> dataset.check_index("user_id_idx").is_valid  # doctest: +SKIP
        True
        """
        from lance_spark.mutations.indexes.check import check_index

        return check_index(self._table, name)

    @also_takes(VectorIndexKeywords)
    def index_recall(
        self, name: str, sample: int = 100, k: int = 10, *, seed: int = 0, **options: Any
    ) -> IndexRecall:
        """Measure how many of the nearest rows an index of vectors finds.

        The queries are vectors of random rows. For each, the nearest other rows are found by the
        index and exactly, which reads the whole column.

        Parameters
        ----------
        name : str
            Name of the index.
        sample : int
            Number of queries.
        k : int
            Rows for each query.
        seed : int
            Another seed chooses other rows.
        **options
            Other keys of `nearest` of `to_table`.

        Raises
        ------
        InvalidInputError
            The index does not exist, or is not an index of vectors.
        CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> dataset.index_recall("vector_idx", nprobes=20).recall  # doctest: +SKIP
        0.97
        """
        from lance_spark.dataset.recall import measure_recall

        return measure_recall(self, name, sample, k, seed, options)

    def get_ivf_model(self, index_name: str) -> IvfModel:
        """Return the centroids of an index of vectors: those of its first segment.

        Raises
        ------
        InvalidInputError
            The index does not exist, has no vectors, or is empty.
        CorruptFileError, StorageError
        """
        from lance_spark.dataset.index_models import ivf_model

        return ivf_model(self._table, index_name)

    def centroids(
        self, *, index_name: str | None = None, column: str | None = None
    ) -> pa.FixedSizeListArray:
        """Return the centroids of an index, or of the first index of a column.

        Raises
        ------
        InvalidInputError
            Not exactly one name is given; or the errors of `get_ivf_model`.
        """
        from lance_spark.dataset.index_models import ivf_model, name_of_vector_index

        if (index_name is None) is (column is None):
            raise InvalidInputError("give either index_name or column")
        if column is not None:
            index_name = name_of_vector_index(self._table, column)
        return ivf_model(self._table, str(index_name)).centroids

    def session(self) -> Session:
        """Return the cache of index files, which all tables of the process share."""
        from lance_spark.dataset.session import Session

        return Session()

    def prewarm_index(
        self,
        name: str,
        *,
        with_position: bool = False,
        index_segments: Iterable[str | uuid.UUID] | None = None,
    ) -> None:
        """Read an index into the cache, so that the first search reads nothing of it.

        The pages of a BTREE, the partitions and graphs of an index of vectors, the words and
        postings of a full-text index, and all zones are kept. Of other types the values are kept;
        a search reads the rows of the values that it finds. The limit of the cache holds: see
        `Session`.

        Parameters
        ----------
        name : str
            Name of the index.
        with_position : bool
            Positions of words, for full-text indexes. They are read by each search for a phrase,
            and not kept, so that this has no effect.
        index_segments : iterable of str or UUID, optional
            Only these segments; by default all.

        Raises
        ------
        InvalidInputError
            The index or a segment does not exist, or the index has another type.
        CorruptFileError, StorageError

        Examples
        --------
        >>> dataset.prewarm_index("vector_idx")
        """
        from lance_spark.dataset.session import prewarm

        prewarm(self._table, name, index_segments, with_position=with_position)

    # Segments of indexes, for programs that distribute their build

    @pylance_keywords(refused=REFUSED_OF_VECTORS)
    @reports_progress
    @also_takes(IndexSegmentKeywords)
    @parameters_of(vector_index)
    def create_index_uncommitted(self, *arguments: Any, **options: Any) -> Index:
        """Write one segment of an index, over some fragments. No version refers to its files.

        Each worker builds a segment; one process commits them by `commit_existing_index_segments`.
        Vectors: give all workers the same `ivf_centroids`, and `pq_codebook`, so that their
        segments can be merged.

        The type is one of `create_scalar_index` or of `create_index`. `fragment_ids` must be given.
        `replace` has no effect: the commit decides.

        Returns
        -------
        Index
            What the commit needs. It can be pickled.

        Raises
        ------
        InvalidInputError, InvalidOptionError, UnsupportedTypeError, UnsupportedFeatureError
            As in `create_scalar_index` and `create_index`; or no fragments are given.
        CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> parts = [
        ...     dataset.create_index_uncommitted("id", "BTREE", fragment_ids=[fragment.fragment_id])
        ...     for fragment in dataset.get_fragments()
        ... ]  # doctest: +SKIP
        >>> dataset = dataset.commit_existing_index_segments("by_id", "id", parts)  # doctest: +SKIP
        """
        from lance_spark.mutations.indexes.uncommitted import build_segment
        from lance_spark.table.indexes.sections import index_of

        return index_of(build_segment(self._table, vector_index(self, *arguments, **options)))

    @reports_progress
    def merge_existing_index_segments(
        self, segments: Sequence[Any], **keywords: Unpack[ProgressKeywords]
    ) -> Index:
        """Write one segment in place of several; no version refers to its files.

        Parameters
        ----------
        segments : sequence of Index
            Segments of one column and type, which cover different fragments. Segments of vectors
            must have one metric, segments of texts one tokenizer. The segments are not deleted.

        Returns
        -------
        Index

        Raises
        ------
        InvalidInputError
            No segment is given, two cover the same fragment, they are of several columns,
            types, metrics or tokenizers, or a compaction has moved their rows.
        CorruptTableError, CorruptFileError, StorageError
        """
        from lance_spark.mutations.indexes.uncommitted import merge_segments
        from lance_spark.table.indexes.sections import index_of, segment_of

        return index_of(merge_segments(self._table, list(map(segment_of, segments))))

    def commit_existing_index_segments(
        self,
        index_name: str,
        column: str,
        segments: Sequence[Any],
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Commit segments as an index, or as a part of one.

        Segments of the index that cover one of the same fragments are replaced, others stay.

        Parameters
        ----------
        index_name : str
        column : str
            Name or dotted path of the column of the segments.
        segments : sequence of Index
            Of this package, or of pylance.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            No segment is given, they cover a fragment twice, they are of another column, table or
            branch, or an index of another column, type, metric or tokenizer has the name.
        CommitConflictError
            Another client changed rows of the segments since they were built.
        CorruptTableError, StorageError
        """
        from lance_spark.mutations.indexes.uncommitted import commit_built
        from lance_spark.table.indexes.sections import segment_of

        options = CommitOptions.of(**keywords)
        built = list(map(segment_of, segments))
        return self._committed(commit_built(self._table, index_name, column, built, options))

    # Versions, tags and branches

    def versions(self) -> list[VersionInfo]:
        """Return all existing versions of the branch, oldest first.

        Returns
        -------
        list of VersionInfo
            Number and commit time of each version. The attributes `metadata` (numbers of fragments,
            files, rows and bytes), `operation`, `message` and `transaction_properties` are read on
            first access.

        Raises
        ------
        CorruptTableError, StorageError
        """
        return history.list_versions(self._table.store)

    def version_refs(self) -> list[dict[str, int]]:
        """Return the numbers of the versions of the branch, oldest first. Reads no manifest.

        Returns
        -------
        list of dict
            Each with the key ``version``, as in pylance.

        Raises
        ------
        StorageError
        """
        from lance_spark.table.manifest.versions import list_manifests

        return [{"version": location.version} for location in list_manifests(self._table.store)]

    def get_version(self) -> VersionInfo:
        """Return the number, the commit time and the metadata of this version.

        Returns
        -------
        VersionInfo
            As `versions` returns it, without a request for `metadata`.
        """
        from lance_spark.table.manifest.history import VersionInfo

        manifest = self._table.manifest
        return VersionInfo(
            manifest.version, manifest.timestamp, self._table.store, _manifest=manifest
        )

    def read_transaction(self, version: int) -> Transaction | None:
        """Return the transaction that created a version of the branch; None if it is not recorded.

        Raises
        ------
        VersionNotFoundError
            The version does not exist.
        CorruptTableError, StorageError
        """
        return history.transaction_of(self._table.store, version)

    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """Return the transactions of this version and of its predecessors, newest first.

        Parameters
        ----------
        recent_transactions : int
            Maximum number of transactions.

        Raises
        ------
        CorruptTableError, StorageError
        """
        check_least("recent_transactions", recent_transactions, 0)
        return history.transactions(self._table.store, self.version, recent_transactions)

    def delta(
        self,
        compared_against: int | None = None,
        *,
        begin_version: int | None = None,
        end_version: int | None = None,
    ) -> DatasetDelta:
        """Compare two versions of the branch.

        Parameters
        ----------
        compared_against : int, optional
            The version that this version is compared with, earlier or later.
        begin_version, end_version : int, optional
            The earlier and the later version, instead of `compared_against`. Changes of the earlier
            version itself do not count. Version 0 has no rows.

        Returns
        -------
        DatasetDelta
            Lists the transactions, the inserted and updated rows, and the ids of deleted rows.

        Raises
        ------
        InvalidInputError
            Neither `compared_against` nor both other versions are given, or all of them.

        Examples
        --------
        >>> dataset.delta(compared_against=1).get_inserted_rows().read_all()
        """
        from lance_spark.dataset.delta import compared

        return compared(self, compared_against, begin_version, end_version)

    @property
    def tags(self) -> Tags:
        """The tags of the table: list, create, move and delete them."""
        from lance_spark.dataset.refs import Tags

        return Tags(self._table)

    @property
    def branches(self) -> Branches:
        """The branches of the table: list and delete them. `create_branch` creates one."""
        from lance_spark.dataset.refs import Branches

        return Branches(self._table)

    def checkout_version(self, version: Reference) -> Self:
        """Open another version.

        Parameters
        ----------
        version : int, str or (str or None, int or None)
            Number of a version of this branch, a tag, or (branch, number), where branch None or
            ``main`` is the main branch and number None the newest version.

        Returns
        -------
        Dataset

        Raises
        ------
        VersionNotFoundError
            The version, tag or branch does not exist.
        InvalidInputError, UnsupportedFeatureError, CorruptTableError, StorageError
        """
        options = self._storage_options
        return type(self)(self._at(version, options), options)

    def checkout_latest(self) -> Self:
        """Return the newest version of the branch. This object keeps its version.

        Raises
        ------
        CorruptTableError, StorageError

        Examples
        --------
        >>> dataset = dataset.checkout_latest()
        """
        return self.checkout_version((self.branch, None))

    def restore(
        self,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Commit the content of this version as the newest version, in place of all later changes.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        VersionNotFoundError
            A cleanup removed this version or is removing it.
        UnsupportedFeatureError, CommitConflictError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.metadata_updates import restore

        options = CommitOptions.of(**keywords)
        return self._committed(restore(self._table, options))

    def create_branch(
        self,
        branch: str,
        reference: Reference | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Create a branch from a version, and open it.

        Parameters
        ----------
        branch : str
            Name of the branch: letters, digits, ".", "-" and "_", with "/" between parts; not
            ``main``.
        reference : int, str or (str or None, int or None), optional
            The version, as in `checkout_version`; by default the open version.
        storage_options : mapping, optional
            Settings of the store; by default the settings of this `Dataset`.

        Returns
        -------
        Dataset
            The first version of the branch.

        Raises
        ------
        InvalidInputError
            The name is not valid, or the branch exists already.
        VersionNotFoundError
            The version, tag or branch does not exist.
        UncertainCommitError
            The store failed, and it is unknown whether the branch was created.
        UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.table.refs.branches import create_branch

        options = self._options(storage_options)
        source = self._at(reference, options)
        manifest = create_branch(source, branch)
        store = branch_store(ObjectStore.from_uri(source.main.uri, options), branch)
        return self._without_reading(store, manifest, options)

    def repair_branches(self) -> list[BranchRepair]:
        """Repair the branches of a table that was copied or moved.

        A branch refers to files of the main branch, or of other branches, by an absolute path. In a
        copy of the table, this is the path of the original, and such a branch cannot be read until
        it is repaired. Only the newest version of each branch is repaired.

        Returns
        -------
        list of BranchRepair
            For each branch, the version that was committed, or the reason why it could not be
            repaired.

        Raises
        ------
        CommitConflictError
            Another client changed the same branch.
        UnsupportedFeatureError, CorruptTableError, StorageError

        Examples
        --------
        >>> shutil.copytree("/data/t.lance", "/copy/t.lance")
        >>> open_dataset("/copy/t.lance").repair_branches()
        """
        from lance_spark.table.refs.branches import repair_branches

        return repair_branches(self._table.main)

    def shallow_clone(
        self,
        target_path: str | os.PathLike[str],
        reference: Reference | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Create a table that shares the files of a version, and open it.

        The clone needs the files of this table: tag the version, so that cleanup keeps them.

        Parameters
        ----------
        target_path : str or path
            Path of the new table.
        reference : int, str or (str or None, int or None), optional
            The version, as in `checkout_version`; by default the open version.
        storage_options : mapping, optional
            Settings of the clone's store; by default the settings of this `Dataset`.

        Returns
        -------
        Dataset
            The first version of the clone.

        Raises
        ------
        TableExistsError
            A table exists at that path.
        VersionNotFoundError
            The version, tag or branch does not exist.
        UncertainCommitError
            The store failed, and it is unknown whether the clone was created.
        InvalidInputError, UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.table.refs.clones import shallow_clone

        options = self._options(storage_options)
        target = ObjectStore.from_uri(target_path, options)
        manifest = shallow_clone(self._at(reference, self._storage_options), target)
        return self._without_reading(target, manifest, options)

    @reports_progress
    def deep_clone(
        self,
        target_path: str | os.PathLike[str],
        reference: Reference | None = None,
        storage_options: Mapping[str, str] | None = None,
        **keywords: Unpack[ProgressKeywords],
    ) -> Self:
        """Create a table with copies of all files of a version, and open it.

        Parameters
        ----------
        target_path, reference, storage_options
            As in `shallow_clone`.

        Returns
        -------
        Dataset
            The first version of the clone.

        Raises
        ------
        TableExistsError, VersionNotFoundError, UncertainCommitError
            As in `shallow_clone`.
        InvalidInputError, UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.table.refs.clones import deep_clone

        options = self._options(storage_options)
        target = ObjectStore.from_uri(target_path, options)
        manifest = deep_clone(self._at(reference, self._storage_options), target)
        return self._without_reading(target, manifest, options)

    # Commits of operations that the caller planned

    @classmethod
    @pylance_keywords(
        refused={
            "enable_v2_manifest_paths": REFUSED["enable_v2_manifest_paths"],
            "namespace_client_managed_versioning": (
                (False,),
                "versions are recorded beside the table",
            ),
        }
    )
    @checks_arguments
    def commit(
        cls,
        base_uri: str | os.PathLike[str] | Self | None,
        operation: Operation | Transaction,
        read_version: int | None = None,
        commit_lock: CommitLock | None = None,
        storage_options: Mapping[str, Any] | None = None,
        *,
        detached: bool = False,
        enable_stable_row_ids: bool = False,
        namespace_client: object | None = None,
        table_id: Sequence[str] | None = None,
        base_store_params: Mapping[str, Mapping[str, Any]] | None = None,
        commit_timeout: datetime.timedelta | None = datetime.timedelta(seconds=1800),
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Commit an operation that the caller planned, and open the new version.

        For jobs that distribute the work themselves. The content of the operation's files is not
        checked.

        Parameters
        ----------
        base_uri : str, path or Dataset
            Root of the table, or of a branch; None with a namespace.
        operation : Operation or Transaction
            The operation. A transaction has its own read version and properties.
        read_version : int, optional
            The version that the operation was planned on; it may be detached if `detached` is true.
            Not needed for operations that keep nothing of it (overwrite, restore).
        commit_lock : callable, optional
            As in `open_dataset`.
        storage_options : mapping, optional
            Settings of the store; by default the settings of the `Dataset`, if a dataset is given.
        detached : bool
            Whether to commit a detached version, with a random number. `checkout_version` opens it.
        enable_stable_row_ids : bool
            Whether a table that is created has stable row ids.
        namespace_client, table_id, base_store_params
            As in `open_dataset`.
        commit_timeout : timedelta, optional
            Time after which no other attempt starts; half an hour by default.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        CommitConflictError
            Another client committed an incompatible operation.
        InvalidInputError
            The read version is missing, or the operation does not fit the table.
        TableExistsError, VersionNotFoundError, UncertainCommitError, UnsupportedFeatureError,
        StorageError
        """
        from lance_spark.dataset.commits import commit_operation

        check_timeout("commit_timeout", commit_timeout)
        options = dict(storage_options or {})
        if isinstance(base_uri, Dataset):
            options = base_uri._options(storage_options)
            base_uri = base_uri.uri
        options = with_base_params(with_lock(options, commit_lock), base_store_params)
        with table_entry(base_uri, namespace_client, table_id, options) as entry:
            location, options = entry.location, dict(entry.storage_options)
        table = commit_operation(
            location,
            options,
            operation,
            read_version,
            CommitOptions.of(**keywords),
            detached=detached,
            enable_stable_row_ids=enable_stable_row_ids,
            timeout=commit_timeout,
        )
        return cls(table, options)

    @classmethod
    @pylance_keywords(
        refused={
            "enable_v2_manifest_paths": (
                (True,),
                "manifests of new tables have names of scheme V2",
            )
        }
    )
    @checks_arguments
    def commit_batch(
        cls,
        dest: str | os.PathLike[str] | Self,
        transactions: Sequence[Transaction],
        commit_lock: CommitLock | None = None,
        storage_options: Mapping[str, Any] | None = None,
        *,
        detached: bool = False,
        max_retries: int = 20,
        base_store_params: Mapping[str, Mapping[str, Any]] | None = None,
        commit_timeout: datetime.timedelta | None = datetime.timedelta(seconds=1800),
    ) -> BulkCommitResult:
        """Commit several appends as one version.

        Parameters
        ----------
        dest : str, path or Dataset
            Root of the table, or of a branch.
        transactions : sequence of Transaction
            Each of an `Append`, for example of `write_fragments`.
        commit_lock, storage_options, detached, max_retries, base_store_params, commit_timeout
            As in `commit`.

        Returns
        -------
        mapping
            ``dataset``: the version that was committed; ``merged``: its transaction, with the
            fragments of all transactions in their order.

        Raises
        ------
        InvalidInputError
            There is no transaction.
        UnsupportedFeatureError
            A transaction is not an append, as in pylance.
        CommitConflictError, UncertainCommitError, StorageError
        """
        from lance_spark.dataset.commits import merged_appends

        merged = merged_appends(transactions)
        dataset = cls.commit(
            dest,
            merged,
            commit_lock=commit_lock,
            storage_options=storage_options,
            detached=detached,
            max_retries=max_retries,
            base_store_params=base_store_params,
            commit_timeout=commit_timeout,
        )
        return {"dataset": dataset, "merged": merged}

    # Fragments and files

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """The fragments, in the table's order."""
        return self._reader.fragments

    def fragment_ids(self) -> BitMap:
        """Return the ids of the fragments, as a set in increasing order."""
        return BitMap(fragment.id for fragment in self._table.manifest.fragments)

    def get_fragments(self, filter: object | None = None) -> list[DatasetFragment]:
        """Return the fragments of this version, in the table's order.

        Parameters
        ----------
        filter : optional
            Not supported, as in pylance.

        Raises
        ------
        UnsupportedFeatureError
            A filter is given.
        """
        from lance_spark.dataset.fragments import DatasetFragment

        if filter is not None:
            raise UnsupportedFeatureError(
                "get_fragments does not support a filter; give it to the scanner of a fragment"
            )
        return [DatasetFragment(self, fragment) for fragment in self.fragments]

    def get_fragment(self, fragment_id: int) -> DatasetFragment | None:
        """Return a fragment by its id; None if this version does not have it."""
        from lance_spark.dataset.fragments import DatasetFragment

        for fragment in self.fragments:
            if fragment.id == fragment_id:
                return DatasetFragment(self, fragment)
        return None

    def new_file_session(self) -> LanceFileSession:
        """Return a session for files below the root of the table; see `LanceFileSession`."""
        from lance_spark.dataset.files import LanceFileSession

        return LanceFileSession._of(self._table.store)

    def all_files(self) -> pa.RecordBatchReader:
        """List the files below the root of the table, also those that no version refers to.

        Returns
        -------
        RecordBatchReader
            Columns: ``base_uri``, the root; ``path`` below it; ``size_bytes``;
            ``last_modified``, null if the store does not report it. Base paths are not listed.

        Raises
        ------
        StorageError
        """
        from lance_spark.dataset.listing import all_files

        return all_files(self._table.store)

    def tracked_files(
        self,
        *,
        min_version: int | None = None,
        progress: Callable[[int, int | None], object] | None = None,
    ) -> pa.RecordBatchReader:
        """List the files that the versions of the branch refer to, once for each version.

        Parameters
        ----------
        min_version : int, optional
            Only versions from this number on.
        progress : callable, optional
            Called after each manifest with the number of manifests that were read, and the number
            of all of them.

        Returns
        -------
        RecordBatchReader
            Columns: ``version``; ``base_uri``, the root or the base path; ``path`` below it;
            ``type``: ``manifest``, ``data file``, ``deletion file``, ``transaction file`` or
            ``index file``. Manifests are read as batches are.

        Raises
        ------
        CorruptTableError, StorageError
        """
        from lance_spark.dataset.listing import tracked_files

        return tracked_files(self._table, min_version, progress)

    # Maintenance and statistics

    @property
    def optimize(self) -> DatasetOptimizer:
        """The methods that pylance's `LanceDataset.optimize` has."""
        from lance_spark.dataset.optimizer import DatasetOptimizer

        return DatasetOptimizer(self)

    @pylance_keywords(unused=UNUSED_OF_COMPACTION, refused=REFUSED_OF_COMPACTION)
    @reports_progress
    def compact_files(
        self,
        **keywords: Unpack[CompactKeywords],
    ) -> tuple[Self, CompactionMetrics]:
        """Rewrite small fragments to large fragments, without their deleted rows.

        Returns
        -------
        (Dataset, CompactionMetrics)
            The version that was committed, or this version if nothing had to be rewritten; and
            numbers of fragments and files.

        Raises
        ------
        InvalidOptionError
            A number is out of range.
        CommitConflictError
            Another client changed the same fragments.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.compaction.run import compact

        table, metrics = compact(
            self._table,
            CompactionOptions(**of_group(CompactionKeywords, keywords)),
            CommitOptions.of(**of_group(RetryProgressKeywords, keywords)),
        )
        return self._committed(table), metrics

    @reports_progress
    def move_fragments(
        self,
        base: str,
        fragment_ids: Collection[int] | None = None,
        *,
        num_threads: int | None = None,
        **keywords: Unpack[RetryProgressKeywords],
    ) -> tuple[Self, CompactionMetrics]:
        """Move fragments to a base path, or to the table's root, by rewriting their rows there.

        Fragments whose data files are all there already are not rewritten. The old files stay for
        older versions: cleanup removes them from the table's root, but not from base paths.

        Parameters
        ----------
        base : str
            Name or path of the base path; the path of the table stands for its own root.
        fragment_ids : collection of int, optional
            Ids of the fragments to move; all by default.
        num_threads : int, optional
            As in `compact_files`.

        Returns
        -------
        (Dataset, CompactionMetrics)
            The version that was committed, or this version if nothing had to be moved; and numbers
            of fragments and files.

        Raises
        ------
        InvalidInputError
            A fragment does not exist.
        InvalidOptionError
            The base path does not exist, or is the root of another table.
        CommitConflictError
            Another client changed the same fragments.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError

        Examples
        --------
        >>> old = [fragment.id for fragment in dataset.fragments][:100]
        >>> dataset, metrics = dataset.move_fragments("cold", old)
        """
        from lance_spark.mutations.compaction.run import move_fragments

        table, metrics = move_fragments(
            self._table,
            base,
            fragment_ids,
            num_threads,
            CommitOptions.of(**keywords),
        )
        return self._committed(table), metrics

    @reports_progress
    def cleanup_old_versions(
        self,
        older_than: datetime.timedelta | None = None,
        retain_versions: int | None = None,
        *,
        versions: Iterable[int] | None = None,
        before_version: int | None = None,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        delete_rate_limit: int | None = None,
        delete_concurrency: int | None = None,
        dry_run: bool = False,
        **keywords: Unpack[ProgressKeywords],
    ) -> CleanupStats:
        """Remove old versions, and the files that only they refer to.

        A version is removed only if it meets all conditions that are given. The newest version,
        this version and versions between them are never removed, nor are versions with a tag,
        versions that a branch was made from and needs, and files that remaining versions or
        branches refer to. Clones in other folders are unknown: tag the versions that they need.

        Parameters
        ----------
        older_than : timedelta, optional
            Remove only versions that were committed at least this long ago; two weeks if no other
            condition is given.
        retain_versions : int, optional
            Keep this number of newest versions.
        versions : iterable of int, optional
            Remove only these versions. Numbers that are not versions of the table are ignored, as
            in pylance: an earlier cleanup may have removed them.
        before_version : int, optional
            Remove only versions with a lower number.
        delete_unverified : bool
            Whether to remove files that no version refers to regardless of their age, instead of
            only those older than 7 days. No client may be writing to the table.
        error_if_tagged_old_versions : bool
            Whether it is an error if a version that meets the conditions has a tag; otherwise it is
            kept.
        delete_rate_limit : int, optional
            Maximum number of files deleted per second.
        delete_concurrency : int, optional
            Maximum number of concurrent requests; 16 by default. Local files are deleted one by
            one.
        dry_run : bool
            Remove nothing; only return what would be removed.

        Returns
        -------
        CleanupStats
            Numbers and names of the removed versions and files.

        Raises
        ------
        InvalidInputError
            A limit is out of range, or a version that meets the conditions has a tag, and that is
            an error. Nothing is removed.
        CorruptTableError, UnsupportedFeatureError
            A version cannot be read, so its references are unknown. Nothing is removed.
        StorageError
        """
        from lance_spark.table.cleanup.run import cleanup, policy_for

        policy = policy_for(
            older_than,
            retain_versions,
            versions=versions,
            before_version=before_version,
            delete_unverified=delete_unverified,
            error_if_tagged_old_versions=error_if_tagged_old_versions,
        )
        return cleanup(
            self._table.store,
            policy,
            read_version=self.version,
            branch=self._table.manifest.branch,
            dry_run=dry_run,
            delete_rate_limit=delete_rate_limit,
            delete_concurrency=delete_concurrency,
        )

    @reports_progress
    def validate(self, **keywords: Unpack[ProgressKeywords]) -> None:
        """Check that the manifest of the version is consistent, and that its files fit it.

        Reads the ends of all data files, the deletion files, and row ids and row versions, but no
        values of columns. Changes nothing. `lance_spark.scan.validate` lists the checks.

        Raises
        ------
        CorruptTableError
            The version is damaged; the message lists the first problems with their fragments and
            files.
        UnsupportedFeatureError, UnsupportedEncodingError
            A file has a version that this release does not know, so it cannot be checked.
        StorageError

        Examples
        --------
        >>> open_dataset("/data/t.lance").validate()
        Traceback (most recent call last): lance_spark.errors.CorruptTableError:
        /data/t.lance/_versions/18446744073709551612.manifest: fragment id 0 occurs twice, ...
        """
        from lance_spark.scan.validate import validate

        validate(self._table)

    def migrate_manifest_paths_v2(self) -> None:
        """Rename the manifests of a table of an early release to the names of the V2 naming scheme.

        No client may write to the table meanwhile; reading is possible. After a crash, call it
        again.

        Raises
        ------
        CorruptTableError, StorageError
        """
        from lance_spark.table.manifest.migrate import migrate_to_v2

        migrate_to_v2(self._table.store)

    @classmethod
    @checks_arguments
    def drop(
        cls,
        base_uri: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        ignore_not_found: bool | None = None,
    ) -> None:
        """Delete a table: all files below its root, with all branches, tags and other files there.

        Files below base paths stay, and so do those of other tables that refer to this one.

        Parameters
        ----------
        base_uri : str or path
            The root of a table with a version that can be read.
        storage_options : mapping, optional
            Settings of the store.
        ignore_not_found : bool, optional
            Whether a `base_uri` without files is accepted.

        Raises
        ------
        TableNotFoundError
            `base_uri` has no files.
        InvalidInputError
            `base_uri` has files, but it is not the root of a table that can be read.
        StorageError

        Examples
        --------
        >>> lance_spark.Dataset.drop("/data/old.lance", ignore_not_found=True)
        """
        from lance_spark.dataset.whole_table import drop_table

        drop_table(base_uri, storage_options, ignore_not_found=bool(ignore_not_found))

    @property
    def stats(self) -> DatasetStatistics:
        """Statistics of the version: `dataset_stats`, `index_stats` and `data_stats`."""
        from lance_spark.dataset.stats import DatasetStatistics

        return DatasetStatistics(self)

    def io_stats_snapshot(self) -> IOStats:
        """Return the reads and writes of the table since the last call of `io_stats_incremental`.

        The first count begins when this object is made. All reads and writes of files below the
        root of the table by this process count, also those by other objects.

        Returns
        -------
        IOStats
            `read_iops`, `read_bytes`, `write_iops` and `written_bytes`.
        """
        return self._table.store.io_counts.stats() - self._io_before

    def io_stats_incremental(self) -> IOStats:
        """Return the counts of `io_stats_snapshot`, and begin again with zero.

        Examples
        --------
        >>> dataset.io_stats_incremental()
        >>> table = dataset.to_table()
        >>> print(dataset.io_stats_incremental().read_bytes)
        """
        before, now = self._io_before, self._table.store.io_counts.stats()
        self._io_before = now
        return now - before

    # MemWAL

    def initialize_mem_wal(self, **keywords: Unpack[MemWalKeywords]) -> Self:
        """Give the table a MemWAL: logs for upserts with low latency.

        At most one of `bucket_column`, `identity_column` and `unsharded` says to which shard a row
        belongs. With none, the writers choose.

        The keywords of `mem_wal_writer` are defaults of all writers.

        Clients that do not know MemWALs read the table without the rows that are not compacted.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            The table has a MemWAL, or files of an earlier one; or a column or index is not found.
        SchemaMismatchError
            A column of the primary key is nullable.
        UnsupportedTypeError, UnsupportedFeatureError
            The type of a column cannot be in a MemWAL.
        InvalidOptionError, CommitConflictError, CorruptTableError, StorageError

        Examples
        --------
        >>> dataset = dataset.initialize_mem_wal(  # doctest: +SKIP
        ...     bucket_column="id", num_buckets=4
        ... )
        """
        from lance_spark.mem_wal.setup import initialize_mem_wal

        table = initialize_mem_wal(
            self._table,
            CommitOptions.of(**of_group(CommitKeywords, keywords)),
            checked(ShardingKeywords, of_group(ShardingKeywords, keywords)),
            of_group(WriterKeywords, keywords),
        )
        return self._committed(table)

    def mem_wal_index_details(self) -> dict[str, Any] | None:
        """Return the settings of the MemWAL, in the form of pylance; None without MemWAL.

        Returns
        -------
        dict, optional
            Keys: num_shards, maintained_indexes, maintain_all_indexes, writer_config_defaults and
            sharding_specs.

        Raises
        ------
        CorruptTableError
        """
        from lance_spark.mem_wal.shards import settings_of

        return settings_of(self._table)

    def mem_wal_shards(self) -> list[ShardDescription]:
        """Return the state of each shard of the MemWAL of the newest version of this branch.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL.
        CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> [shard.num_sstables for shard in dataset.mem_wal_shards()]  # doctest: +SKIP
        [2, 0]
        """
        from lance_spark.mem_wal.shards import describe_shards

        return describe_shards(self._table)

    def mem_wal_writer(
        self,
        shard_id: str | None = None,
        *,
        shard_values: Mapping[str, Any] | None = None,
        **keywords: Unpack[WriterKeywords],
    ) -> ShardWriter:
        """Open a writer of a shard, which ends the writer that the shard has.

        Parameters
        ----------
        shard_id : str, optional
            UUID of the shard, which is made if it does not exist. Without it, `shard_values` says
            which shard; a table without sharding by columns (`unsharded`) needs neither.
        shard_values : mapping of str to value, optional
            The values of the sharding fields, for example ``{"bucket": 3}``. The writer refuses
            rows that belong to other shards.

        Returns
        -------
        ShardWriter
            A context manager, which flushes at its end.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL, the shard is not determined, or it is sealed.
        CommitConflictError
            Another client claims the shard at the same time.
        InvalidOptionError, CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> with dataset.mem_wal_writer(shard_values={"bucket": 0}) as writer:  # doctest: +SKIP
        ...     writer.put(rows)
        """
        from lance_spark.mem_wal.open import open_writer

        return open_writer(self._table, shard_id, shard_values, keywords)

    def split_by_shard(self, data: Any, *, schema: pa.Schema | None = None) -> dict[str, pa.Table]:
        """Split rows by the shard that they belong to.

        Parameters
        ----------
        data : pyarrow.Table, RecordBatch, RecordBatchReader or other Arrow data
            With the column that rows are dealt out by.
        schema : pyarrow.Schema, optional
            Of an iterable of batches.

        Returns
        -------
        dict of str to pyarrow.Table
            The rows by the UUID of the shard, in their order.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL, or its writers choose shards.
        UnsupportedError, CorruptTableError

        Examples
        --------
        >>> for shard_id, part in dataset.split_by_shard(rows).items():  # doctest: +SKIP
        ...     writers[shard_id].put(part)
        """
        from lance_spark.mem_wal.open import split_rows

        return split_rows(self._table, data, schema)

    def compact_mem_wal(
        self,
        *,
        flush: bool = False,
        **keywords: Unpack[RetryKeywords],
    ) -> Self:
        """Bring the rows of all SSTables of the MemWAL into the table, in one commit.

        Parameters
        ----------
        flush : bool
            Whether to make SSTables of rows that only the logs have. This ends the writers of their
            shards.

        Returns
        -------
        Dataset
            The version that was committed; the newest version if no SSTable was left to compact.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL.
        CommitConflictError, CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> dataset = dataset.compact_mem_wal()  # doctest: +SKIP
        """
        from lance_spark.mem_wal.compaction import compact_mem_wal
        from lance_spark.mem_wal.open import flush_logs
        from lance_spark.mutations.commits import newest

        table = newest(self._table)
        if flush:
            flush_logs(table)
        compact_mem_wal(table, CommitOptions.of(**keywords))
        return self._committed(newest(table))

    def clean_mem_wal(
        self, older_than: datetime.timedelta = datetime.timedelta(days=7)
    ) -> MemWalCleanup:
        """Remove files of the MemWAL that no reader or writer needs any more.

        Parameters
        ----------
        older_than : timedelta
            Keep files that were needed within this time. It must be longer than any fresh read, and
            any write, takes.

        Returns
        -------
        MemWalCleanup
            Numbers of removed files and bytes.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL, or the time is negative.
        CorruptTableError, CorruptFileError, StorageError
        """
        from lance_spark.mem_wal.cleanup import clean_mem_wal
        from lance_spark.mutations.commits import newest

        return clean_mem_wal(newest(self._table), older_than)

    def disable_mem_wal(
        self,
        *,
        compact: bool = True,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Remove the MemWAL with all its files. Its writers end. Stop them before.

        Files that an earlier MemWAL has left are removed, too.

        Parameters
        ----------
        compact : bool
            Whether to bring the rows of the MemWAL into the table first. If False, a MemWAL with
            rows that are not in the table is refused.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        UnsupportedFeatureError
            Shards have rows that are not in the table.
        InvalidInputError
            The table has no MemWAL.
        CommitConflictError, CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> dataset = dataset.disable_mem_wal()  # doctest: +SKIP
        """
        from lance_spark.mem_wal.setup import disable_mem_wal

        options = CommitOptions.of(**keywords)
        return self._committed(disable_mem_wal(self._table, options, compact=compact))

    # Internal

    def _committed(self, table: OpenTable) -> Self:
        """Return a version that was committed, as a handle of the same kind."""
        return type(self)(table, self._storage_options)

    def _at(self, reference: Reference | None, options: Mapping[str, Any]) -> OpenTable:
        from lance_spark.table.open import open_reference

        return open_reference(self._table, reference, options)

    def _options(self, storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
        return self._storage_options if storage_options is None else dict(storage_options)

    def _without_reading(
        self, store: ObjectStore, manifest: Manifest, options: Mapping[str, Any]
    ) -> Self:
        """Open a new branch or clone without reading from the store.

        An error of the store would hide that it exists.
        """
        paths = TablePaths(store, manifest.base_paths, options)
        return type(self)(OpenTable(paths, manifest), options)

    def _update(self, options: CommitOptions, **values: Any) -> Self:
        from lance_spark.mutations.metadata_updates import update_config

        return self._committed(update_config(self._table, **values, options=options))

    def _stored_schema(
        self, columns: Sequence[str] | None = None, blob_handling: str | None = None
    ) -> pa.Schema:
        """Return the Arrow schema of a read, with stored types in place of extension types."""
        with error_context(self._table.store.display):
            return self._reader.select(columns, blob_handling=blob_handling).to_arrow()


@pylance_keywords(
    renamed={"asof": "timestamp"},
    unused=(
        "block_size",
        "index_cache_size",
        "index_cache_size_bytes",
        "metadata_cache_size_bytes",
        "read_params",
    ),
    refused={"default_scan_options": ((), "give the options to each scan")},
)
@prefixes_errors_at
def open_dataset(
    uri: str | os.PathLike[str] | None = None,
    version: int | str | None = None,
    *,
    branch: str | None = None,
    tag: str | None = None,
    timestamp: datetime.datetime | None = None,
    storage_options: Mapping[str, Any] | None = None,
    base_store_params: Mapping[str, Mapping[str, Any]] | None = None,
    manifest_store: ManifestStore | str | None = None,
    commit_lock: CommitLock | None = None,
    namespace_client: object | None = None,
    table_id: Sequence[str] | None = None,
    session: Session | None = None,
) -> Dataset:
    """Open a table at its newest version, or at another version.

    Parameters
    ----------
    uri : str or path
        A path, or a URI of any scheme that fsspec knows.
    version : int or str, optional
        Number of the version, or a tag.
    branch : str, optional
        Name of the branch, ``main`` for the main branch. By default, the branch that `uri` is the
        root of.
    tag : str, optional
        A tag of the version.
    timestamp : datetime, optional
        Open the newest version committed at or before this time. Without a time zone it is local
        time.
    storage_options : mapping, optional
        Settings of the store: credentials, endpoint, region. ``base_<id>.<name>`` is a setting of
        one base path.
    base_store_params : mapping of str to mapping, optional
        Storage options of base paths, by their paths, instead of the options of the table. They are
        not stored in the table. The table need not have these base paths yet: `add_bases` and
        `repoint_base` use the options too. A write refuses unknown base paths.
    manifest_store : ManifestStore or str, optional
        The database that records the table's manifests, or ``package.module:name`` of a callable
        that returns one for the storage options. The same as the storage option of that name. Not
        needed for ``s3+ddb://``.
    commit_lock : callable, optional
        Receives a version, and returns a context manager inside of which no other client with the
        same lock commits that version. The same as the storage option of that name.
    namespace_client : LanceNamespace or Namespace, optional
        In place of `uri`: the namespace that knows where the table is, of the package
        lance-namespace or of `lance_spark.namespace`. The storage options that it gives replace
        `storage_options`.
    table_id : sequence of str, optional
        The names of the table in `namespace_client`.
    session : Session, optional
        For programs that share a cache. Has no effect: all tables of a process share one.

    Returns
    -------
    Dataset

    Raises
    ------
    TableNotFoundError, VersionNotFoundError, UnsupportedFeatureError, CorruptTableError,
    StorageError
    InvalidOptionError
        More than one of version, tag and timestamp is given, the tag is on another branch, or not
        exactly one of `uri` and a name in a namespace is given.
    """
    if isinstance(version, str):
        if tag is not None:
            raise InvalidOptionError(f"give one tag, not the version {version!r} and {tag!r}")
        version, tag = None, version
    options = with_store(with_lock(storage_options, commit_lock), manifest_store)
    options = with_base_params(options, base_store_params)
    with table_entry(uri, namespace_client, table_id, options) as entry:
        table = open_table(
            entry.location,
            version=version,
            branch=branch,
            tag=tag,
            timestamp=None if timestamp is None else _instant(timestamp),
            storage_options=entry.storage_options,
        )
    return Dataset(table, entry.storage_options)


def _instant(timestamp: datetime.datetime) -> datetime.datetime:
    """Return a time with a time zone: the local zone if the time has none."""
    if not isinstance(timestamp, datetime.datetime):
        raise InvalidInputError(f"timestamp must be a datetime, not {type(timestamp).__name__}")
    try:
        return timestamp if timestamp.tzinfo is not None else timestamp.astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInputError(
            f"timestamp {timestamp} cannot be converted from local time: {error}"
        ) from None
