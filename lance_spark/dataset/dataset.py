"""The handle on a Lance table without Spark: open, scan, take; what it inherits changes the table and tells its history."""

from __future__ import annotations

import datetime
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_spark.arguments import check_least
from lance_spark.dataset.columns import ColumnMethods
from lance_spark.dataset.error_paths import names_table, names_table_at
from lance_spark.dataset.maintenance import MaintenanceMethods
from lance_spark.dataset.rows import RowMethods
from lance_spark.errors import InvalidInputError
from lance_spark.file.blobs.fields import Handling, handled
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.blobs.file import DEFAULT_BUFFER_SIZE, BlobFile
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.open_files import OpenFiles
from lance_spark.scan.plan import (
    collection_paused,
    default_target_rows,
    estimated_bytes,
    pack,
    read_bytes,
    select_fragments,
    with_positions,
)
from lance_spark.scan.positions import parse_positions
from lance_spark.scan.predicates.conditions import Condition, top_fields
from lance_spark.scan.predicates.tuples import parse_filters
from lance_spark.scan.take import RowFinder, take_addresses, take_rows
from lance_spark.scan.task import ScanTask
from lance_spark.storage.commit.manifest_store import ManifestStore, with_store
from lance_spark.storage.options.base_paths import with_base_params
from lance_spark.table.blob_dataset import check_columns
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.open import OpenTable, open_table

if TYPE_CHECKING:
    from lance_spark.scan.predicates.tree import Predicate

#: Rows of a batch at most. Many rows per batch are what columnar engines work best with.
DEFAULT_BATCH_SIZE = 65_536


@names_table
class Dataset(ColumnMethods, RowMethods, MaintenanceMethods):
    """One version of a Lance table. Immutable: later commits are not seen.

    Made by `open_dataset` and `write_dataset`.
    """

    def __init__(self, table: OpenTable, storage_options: Mapping[str, str] | None = None) -> None:
        super().__init__(table, storage_options)
        self._fragments: tuple[Fragment, ...] | None = None
        self._open_files = OpenFiles()
        self._finder: RowFinder | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns, with the table's metadata and that of its fields."""
        return self._table.schema.to_arrow()

    def schema_of(
        self,
        columns: Sequence[str] | None = None,
        *,
        blob_handling: str | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
    ) -> pa.Schema:
        """Return the schema that a read has; see `to_batches`."""
        return self._select(columns, blob_handling, with_row_id, with_row_address).to_arrow()

    @property
    def data_storage_version(self) -> str:
        """Version of the data files, for example ``2.2``."""
        major, minor = self._table.manifest.data_storage_version
        return f"{major}.{minor}"

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """The fragments in the table's order."""
        if self._fragments is None:
            self._fragments = counted_fragments(self._table.paths, self._table.manifest)
        return self._fragments

    def count_rows(self) -> int:
        """Return the number of rows that are not deleted. Reads no data file, but for tables of early releases."""
        return sum(fragment.num_rows for fragment in self.fragments)

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        *,
        filters: Iterable[Sequence[Any]] | None = None,
        filter: str | Predicate | None = None,
        blob_handling: str | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows in the table's order.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of columns, or dotted paths of children of structs; all columns by default. Columns that every table has
            of its rows are read if they are named: ``_rowid``, ``_rowaddr``, ``_rowoffset``, ``_row_created_at_version``,
            ``_row_last_updated_at_version`` and ``_fragid``.
        batch_size : int
            Rows of a batch at most.
        filters : iterable of (column, operator, value), optional
            Only rows that meet all of them: ``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``in``, ``not in`` (with a list), and
            ``is_null`` and ``is_not_null`` (without a value). Other columns are read for these rows only, and pages are
            skipped where the file has statistics of them (version 0.1).
        filter : str or Predicate, optional
            Only rows that meet it too: what ``WHERE`` takes in Spark's SQL, with its three truth values and its NaN (`scan.sql`).
            Timestamps are compared with instants by their zone; none is taken for granted.
        blob_handling : str, optional
            What blob columns give: ``blobs_descriptions`` (where the bytes are; the default), ``all_binary`` (the bytes)
            or ``none`` (they are left out). ``all_descriptions`` is the first.
        with_row_id, with_row_address : bool
            Whether ``_rowid`` and ``_rowaddr`` follow after the other columns.

        Raises
        ------
        InvalidInputError
            There is no such column, or `batch_size` is not positive, or there is no such handling.
        CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
        """
        tasks = self.plan(
            columns,
            target_rows=1 << 62,
            batch_size=batch_size,
            filters=filters,
            filter=filter,
            blob_handling=blob_handling,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
        )
        for task in tasks:
            yield from task.batches()

    def to_table(
        self,
        columns: Sequence[str] | None = None,
        *,
        filters: Iterable[Sequence[Any]] | None = None,
        filter: str | Predicate | None = None,
        blob_handling: str | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
    ) -> pa.Table:
        """Return all rows as a table; see `to_batches`."""
        schema = self._select(columns, blob_handling, with_row_id, with_row_address).to_arrow()
        batches = self.to_batches(
            columns,
            filters=filters,
            filter=filter,
            blob_handling=blob_handling,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
        )
        return pa.Table.from_batches(batches, schema)

    def take(
        self,
        indices: Sequence[int],
        columns: Sequence[str] | None = None,
        *,
        blob_handling: str | None = None,
    ) -> pa.Table:
        """Return rows by their position in the table's order, deleted rows not counted.

        Up to 64 data files stay open for the next take, for as long as there is this object.

        Parameters
        ----------
        indices : sequence of int, or integer array
            In any order; a row can be taken more than once.
        columns : sequence of str, optional
            A column about rows, such as ``_rowid``, is as often in the table as it is named; any other column once.
        blob_handling : str, optional
            As in `to_batches`.

        Raises
        ------
        InvalidInputError
            A position is negative or past the end, or there is no such column.
        """
        names = row_meta.without_repeats(columns)
        schema = row_meta.of_take(self._select(names, blob_handling))
        wanted = parse_positions(indices, self.count_rows())
        if self._table.manifest.flags.stable_row_ids:
            row_meta.check_row_ids(self.fragments, schema.fields)
        unique, inverse = np.unique(wanted, return_inverse=True)
        batches = take_rows(self._table.paths, self.fragments, schema, unique, self._open_files)
        table = pa.Table.from_batches(batches, schema.to_arrow())
        table = row_meta.with_repeats(table, columns)
        if np.array_equal(inverse, np.arange(len(unique))):
            return table
        return table.take(pa.array(inverse))

    def take_rows(
        self,
        row_ids: Sequence[int],
        columns: Sequence[str] | None = None,
        *,
        blob_handling: str | None = None,
    ) -> pa.Table:
        """Return rows by their ids, as ``_rowid`` has them. Ids that no live row has are left out.

        The first call reads which rows have which ids, in tables with stable row ids; that is kept for as long as there is
        this object.

        Parameters
        ----------
        row_ids : sequence of int, or integer array
            In any order; a row can be taken more than once.
        columns : sequence of str, optional
            A column about rows, such as ``_rowid``, is as often in the table as it is named; any other column once.
        blob_handling : str, optional
            As in `to_batches`.

        Raises
        ------
        InvalidInputError
            There is no such column.
        CorruptTableError, CorruptFileError, StorageError
        """
        names = row_meta.without_repeats(columns)
        schema = row_meta.of_take(self._select(names, blob_handling))
        found, addresses = self._row_finder().find(row_ids)
        table = take_addresses(
            self._table.paths, self.fragments, schema, addresses[found], self._open_files
        )
        return row_meta.with_repeats(table, columns)

    def take_blobs(
        self,
        blob_column: str,
        ids: Sequence[int] | None = None,
        addresses: Sequence[int] | None = None,
        indices: Sequence[int] | None = None,
        *,
        buffer_size: int = DEFAULT_BUFFER_SIZE,
    ) -> list[BlobFile | None]:
        """Return blobs of some rows as files, to read any part of them without the rest.

        Parameters
        ----------
        blob_column : str
            Name of a blob column, or dotted path of one inside structs.
        ids, addresses, indices : sequence of int
            One of the three says which rows: row ids, row addresses (fragment id << 32 | offset), or positions in the
            table's order.
        buffer_size : int
            Bytes that sequential reads of a file ask for at once; 0 for no more than is needed.

        Returns
        -------
        list of BlobFile or None
            One for each row asked for, in that order; None for nulls.

        Raises
        ------
        InvalidInputError
            The column is no blob, a row does not exist or is deleted, or not exactly one kind of row is given.
        """
        from lance_spark.scan.blobs.take import take_blobs

        given = {"ids": ids, "addresses": addresses, "indices": indices}
        finder = self._row_finder()
        return take_blobs(self._table, self.fragments, blob_column, given, buffer_size, finder)

    @collection_paused()
    def plan(
        self,
        columns: Sequence[str] | None = None,
        *,
        target_rows: int | None = None,
        min_partitions: int = 1,
        batch_size: int = DEFAULT_BATCH_SIZE,
        filters: Iterable[Sequence[Any]] | None = None,
        filter: str | Predicate | None = None,
        blob_handling: str | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
        fragment_ids: Collection[int] | None = None,
        whole_fragments: bool = False,
    ) -> list[ScanTask]:
        """Cut a scan into tasks that can be sent to workers.

        Parameters
        ----------
        columns : sequence of str, optional
            As in `to_batches`.
        target_rows : int, optional
            Rows that a task aims at; by default what makes about 128 MiB of files, and work for `min_partitions` tasks.
        min_partitions : int
            How many tasks run at the same time.
        batch_size : int
            Rows of a batch at most.
        filters : iterable of (column, operator, value), optional
        filter : str or Predicate, optional
        blob_handling : str, optional
        with_row_id, with_row_address : bool
            As in `to_batches`.
        fragment_ids : collection of int, optional
            Only rows of these fragments.
        whole_fragments : bool
            Whether all rows of a fragment are read by one task.

        Returns
        -------
        list of ScanTask
            In the table's order; none if the table has no rows.

        Raises
        ------
        InvalidInputError
            There is no such column or fragment, or a number is not positive.
        """
        check_least("batch_size", batch_size, 1)
        check_least("min_partitions", min_partitions, 1)
        if target_rows is not None:
            check_least("target_rows", target_rows, 1)
        schema = self._select(columns, blob_handling, with_row_id, with_row_address)
        fragments: Sequence[Fragment] = self.fragments
        manifest = self._table.manifest
        conditions = self._conditions(filters, filter)
        read = (*schema.fields, *top_fields(conditions))
        check_columns(manifest, read)
        wanted = select_fragments(fragments, fragment_ids)
        if target_rows is None:
            rows = sum([fragment.physical_rows for fragment in wanted])
            stored = estimated_bytes(wanted, rows)
            target_rows = default_target_rows(
                rows,
                read_bytes(stored, rows, read, self._table.schema.fields),
                min_partitions,
                max(len(schema.fields), 1),
            )
        if manifest.flags.stable_row_ids:
            row_meta.check_row_ids(fragments, read)
            wanted = row_meta.light(wanted, read)
        uri, base_paths = self.uri, manifest.base_paths
        groups = pack(wanted, target_rows, whole=whole_fragments)
        if conditions and manifest.index_section is not None:
            from lance_spark.scan.pruning import zone_maps

            left = zone_maps.candidates(conditions, self._table.paths, manifest, fragments)
            if left is not None:
                groups = zone_maps.narrowed(groups, left, target_rows)
        if row_meta.needs(read, row_meta.ROW_OFFSET):
            groups = with_positions(groups, row_meta.first_positions(fragments))
        return [
            ScanTask(
                uri=uri,
                lance_schema=schema,
                slices=slices,
                batch_size=batch_size,
                filters=conditions,
                base_paths=base_paths,
                storage_options=self._storage_options,
            )
            for slices in groups
        ]

    def explain(
        self,
        columns: Sequence[str] | None = None,
        *,
        filters: Iterable[Sequence[Any]] | None = None,
        filter: str | Predicate | None = None,
        blob_handling: str | None = None,
        target_rows: int | None = None,
        min_partitions: int = 1,
    ) -> str:
        """Tell in some lines what a scan is going to read: tasks, fragments, rows that statistics leave, bytes; see `plan`."""
        from lance_spark.scan.explain import explained

        given = None if filters is None else list(filters)
        tasks = self.plan(
            columns,
            target_rows=target_rows,
            min_partitions=min_partitions,
            filters=given,
            filter=filter,
            blob_handling=blob_handling,
        )
        parts = [str(part) for part in (*(given or ()), filter) if part is not None]
        paths = self._table.paths
        name = f"{paths.store.display}, version {self.version}"
        return explained(tasks, paths, self.fragments, name, " AND ".join(parts))

    def _conditions(
        self, filters: Iterable[Sequence[Any]] | None, filter: str | Predicate | None
    ) -> tuple[Condition, ...]:
        known = row_meta.with_all(self._table.schema)
        conditions: tuple[Condition, ...] = parse_filters(filters, known)
        if filter is None:
            return conditions
        if isinstance(filter, str):
            from lance_spark.scan.predicates.sql import parse_predicate

            return (*conditions, parse_predicate(filter, known))
        if not hasattr(filter, "paths"):
            raise InvalidInputError(
                f"filter must be a string or a Predicate, not {type(filter).__name__}"
            )
        return (*conditions, filter)

    def _row_finder(self) -> RowFinder:
        if self._finder is None:
            self._finder = RowFinder(self._table, self.fragments)
        return self._finder

    def _select(
        self,
        columns: Sequence[str] | None,
        blob_handling: str | None,
        with_row_id: bool = False,
        with_row_address: bool = False,
    ) -> Schema:
        schema = self._table.schema
        select_fragments = row_meta.select(
            schema, columns, with_row_id=with_row_id, with_row_address=with_row_address
        )
        check_columns(self._table.manifest, select_fragments.fields)
        version = self._table.manifest.data_storage_version
        return handled(select_fragments, Handling.parse(blob_handling), version)


@names_table_at
def open_dataset(
    uri: str | os.PathLike[str],
    version: int | None = None,
    *,
    branch: str | None = None,
    tag: str | None = None,
    timestamp: datetime.datetime | None = None,
    storage_options: Mapping[str, Any] | None = None,
    base_store_params: Mapping[str, Mapping[str, Any]] | None = None,
    manifest_store: ManifestStore | str | None = None,
) -> Dataset:
    """Open a table at its newest version, or at the one that is named.

    Parameters
    ----------
    uri : str or path
        A path, or a URI of any scheme that fsspec knows.
    version : int, optional
    branch : str, optional
        ``main`` for the main one. The one that `uri` is the root of, if none is given.
    tag : str, optional
    timestamp : datetime, optional
        The newest version committed until then. Without a time zone it is local time.
    storage_options : mapping, optional
        Settings of the store: credentials, endpoint, region. ``base_<id>.<name>`` is a setting of one base path.
    base_store_params : mapping of str to mapping, optional
        Storage options of base paths, by their paths, in place of those of the table. None of them is kept with the table. The
        table need not have such a base path yet: `add_bases` and `repoint_base` use the settings too. A write refuses others.
    manifest_store : ManifestStore or str, optional
        The database that keeps the table's manifests, or the ``package.module:name`` of what makes one from the storage options.
        The same as the storage option of that name. ``s3+ddb://`` needs none.

    Raises
    ------
    TableNotFoundError, VersionNotFoundError, UnsupportedFeatureError, CorruptTableError, StorageError
    InvalidOptionError
        More than one of version, tag and timestamp is given, or the tag names a version on another branch.
    """
    storage_options = with_base_params(
        with_store(storage_options, manifest_store), base_store_params
    )
    table = open_table(
        os.fspath(uri),
        version=version,
        branch=branch,
        tag=tag,
        timestamp=None if timestamp is None else _instant(timestamp),
        storage_options=storage_options,
    )
    return Dataset(table, storage_options)


def _instant(timestamp: datetime.datetime) -> datetime.datetime:
    """Return a time with its zone."""
    if not isinstance(timestamp, datetime.datetime):
        raise InvalidInputError(f"timestamp must be a datetime, not {type(timestamp).__name__}")
    try:
        return timestamp if timestamp.tzinfo is not None else timestamp.astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInputError(
            f"timestamp {timestamp} has no instant in the local time zone: {error}"
        ) from None
