"""Methods of `Dataset` that describe a version, with the names of pylance."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.dataset.scanning.methods import ScannerMethods
from lance_spark.errors import InvalidInputError

if TYPE_CHECKING:
    from lance_spark.dataset.facts.delta import DatasetDelta
    from lance_spark.dataset.facts.lance_schema import LanceSchema
    from lance_spark.dataset.facts.statistics import DatasetStatistics
    from lance_spark.dataset.files.models import IvfModel
    from lance_spark.storage.io_counts import IOStats
    from lance_spark.table.manifest.history import VersionInfo


class FactMethods(ScannerMethods):
    """Methods of `Dataset` that describe a version. Most read the manifest alone."""

    @property
    def has_index(self) -> bool:
        """Whether the version has an index."""
        from lance_spark.table.indexes.sections import read_section

        return bool(read_section(self._table.manifest).indices)

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether rows keep their ids when they are moved."""
        return bool(self._table.manifest.flags.stable_row_ids)

    @property
    def max_field_id(self) -> int:
        """The largest id of a field that the manifest names; -1 without fields."""
        from lance_spark.table.manifest.field_ids import max_field_id

        return int(max_field_id(self._table.manifest.to_proto()))

    @property
    def initial_storage_options(self) -> dict[str, str] | None:
        """The storage options that the table was opened with, with secrets; None without any."""
        return dict(self._storage_options) or None

    def latest_storage_options(self) -> dict[str, str] | None:
        """Return the storage options in use, with secrets; None without any.

        Credentials of a namespace are renewed before they expire.
        """
        return dict(self._table.store.options) or None

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

    @property
    def stats(self) -> DatasetStatistics:
        """Statistics of the version: `dataset_stats`, `index_stats` and `data_stats`."""
        from lance_spark.dataset.facts.statistics import DatasetStatistics

        return DatasetStatistics(self)

    def fragment_ids(self) -> BitMap:
        """Return the ids of the fragments, as a set in increasing order."""
        return BitMap(fragment.id for fragment in self._table.manifest.fragments)

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

    @property
    def lance_schema(self) -> LanceSchema:
        """The fields of the table with their ids."""
        from lance_spark.dataset.facts.lance_schema import LanceSchema

        return LanceSchema(self._table.schema)

    def get_ivf_model(self, index_name: str) -> IvfModel:
        """Return the centroids of an index of vectors: those of its first segment.

        Raises
        ------
        InvalidInputError
            The index does not exist, has no vectors, or is empty.
        CorruptFileError, StorageError
        """
        from lance_spark.dataset.files.models import IvfModel
        from lance_spark.scan.indexes.files import IndexFiles
        from lance_spark.scan.vectors.files.segment import open_segment
        from lance_spark.table.indexes import sections

        for segment in sections.section_of(self._table.manifest).indices:
            if segment.name != index_name or sections.type_of_index(segment) != "VECTOR":
                continue
            opened = open_segment(IndexFiles(self._table.paths, segment))
            if opened is not None:
                centroids = opened.ivf.centroids
                values = pa.array(centroids.ravel())
                array = pa.FixedSizeListArray.from_arrays(values, centroids.shape[1])
                return IvfModel(array, opened.metric.value)
        raise InvalidInputError(f"index {index_name!r} is not an index of vectors, or is empty")

    def centroids(
        self, *, index_name: str | None = None, column: str | None = None
    ) -> pa.FixedSizeListArray:
        """Return the centroids of an index, or of the first index of a column.

        Raises
        ------
        InvalidInputError
            Not exactly one name is given; or the errors of `get_ivf_model`.
        """
        from lance_spark.table.indexes import sections

        if (index_name is None) is (column is None):
            raise InvalidInputError("give either index_name or column")
        if index_name is not None:
            return self.get_ivf_model(index_name).centroids
        number = self._table.schema.field(str(column)).id
        for segment in sections.section_of(self._table.manifest).indices:
            if number in segment.fields and sections.type_of_index(segment) == "VECTOR":
                return self.get_ivf_model(segment.name).centroids
        raise InvalidInputError(f"column {column!r} has no index of vectors")

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
        from lance_spark.dataset.facts.delta import DatasetDelta

        if compared_against is not None:
            if begin_version is not None or end_version is not None:
                raise InvalidInputError(
                    "give compared_against, or begin_version and end_version, not both"
                )
            begin_version, end_version = sorted((compared_against, self.version))
        if begin_version is None or end_version is None:
            raise InvalidInputError("give compared_against, or begin_version and end_version")
        return DatasetDelta(self, begin_version, end_version)

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
        from lance_spark.scan.indexes.moved_rows import MovedRows
        from lance_spark.table.indexes.sections import section_of

        if not isinstance(addrs, pa.Array) or addrs.type != pa.uint64():
            shown = addrs.type if isinstance(addrs, pa.Array) else type(addrs).__name__
            raise InvalidInputError(f"addrs must be an array of uint64, not {shown}")
        moves = MovedRows.of(self._table.paths, section_of(self._table.manifest))
        if not moves:
            return None
        addresses = addrs.fill_null(0).to_numpy()
        fragments = BitMap(np.unique(addresses >> np.uint64(32)).astype(np.uint32))
        moved, is_live = moves.addresses(addresses, fragments)
        is_null = addrs.is_null().to_numpy(zero_copy_only=False) | ~is_live
        return pa.array(moved, pa.uint64(), mask=is_null)

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
        from lance_spark.dataset.facts.files import all_files

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
        from lance_spark.dataset.facts.files import tracked_files

        return tracked_files(self._table, min_version, progress)
