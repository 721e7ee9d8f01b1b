"""`Dataset`, an open version of a table, and `open_dataset`."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from lance_spark.arguments import takes_keywords
from lance_spark.dataset.changes.index_segments import SegmentMethods
from lance_spark.dataset.changes.merging import MergeMethods
from lance_spark.dataset.changes.whole_table import WholeTableMethods
from lance_spark.dataset.columns import ColumnMethods
from lance_spark.dataset.error_paths import names_table, names_table_at
from lance_spark.dataset.facts.version import FactMethods
from lance_spark.dataset.fresh.methods import FreshMethods
from lance_spark.dataset.indexes import IndexMethods
from lance_spark.dataset.maintenance import MaintenanceMethods
from lance_spark.dataset.mem_wal import MemWalMethods
from lance_spark.dataset.recall import RecallMethods
from lance_spark.dataset.rows.blobs import BlobMethods
from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.namespace import table_entry
from lance_spark.progress import reports_progress
from lance_spark.storage.commit.lock import CommitLock, with_lock
from lance_spark.storage.commit.manifest_store import ManifestStore, with_store
from lance_spark.storage.options.base_paths import with_base_params
from lance_spark.table.commit.options import CommitOptions, RetryProgressKeywords
from lance_spark.table.open import open_table

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from lance_spark.dataset.facts.optimizer import DatasetOptimizer
    from lance_spark.dataset.facts.session import Session


@names_table
class Dataset(
    FreshMethods,
    MemWalMethods,
    RecallMethods,
    BlobMethods,
    FactMethods,
    ColumnMethods,
    MergeMethods,
    WholeTableMethods,
    SegmentMethods,
    IndexMethods,
    MaintenanceMethods,
):
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

    @property
    def optimize(self) -> DatasetOptimizer:
        """The methods that pylance's `LanceDataset.optimize` has."""
        from lance_spark.dataset.facts.optimizer import DatasetOptimizer

        return DatasetOptimizer(self)

    @takes_keywords(renamed={"predicate": "filters"})
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

    @takes_keywords(
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


@takes_keywords(
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
@names_table_at
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
