"""Methods of `Dataset` for indexes: created, extended, checked, listed and dropped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from lance_spark.arguments import Refusals, takes_keywords
from lance_spark.dataset.history import HistoryMethods
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.spelling import spelled
from lance_spark.progress import ProgressCallback, reports_progress
from lance_spark.table.commit.options import CommitKeywords, CommitOptions, RetryProgressKeywords

if TYPE_CHECKING:
    from lance_spark.mutations.indexes.check import IndexCheck
    from lance_spark.mutations.indexes.create import IndexConfig
    from lance_spark.mutations.indexes.existing import IndexDescription

_REFUSED: Refusals = {"index_uuid": ((), "each segment gets an id of its own")}
REFUSED_OF_VECTORS: Refusals = {
    **_REFUSED,
    "ivf_centroids_file": ((), "give ivf_centroids"),
    "precomputed_partition_dataset": ((), "give ivf_centroids: vectors are assigned to them"),
}


class IndexMethods(HistoryMethods):
    """Methods of `Dataset` for indexes."""

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

    @takes_keywords(renamed={"index_name": "name"})
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
        from lance_spark.mutations.indexes.statistics import index_statistics

        return index_statistics(self._table, name)

    @reports_progress
    def check_index(
        self, name: str, *, progress_callback: ProgressCallback | None = None
    ) -> IndexCheck:
        """Compare an index with its column, in both directions.

        Reads the index and the column, one segment of the index after the other. Changes nothing.
        The types are those of `create_scalar_index`. Rows of fragments that the index does not
        cover, which scans read in full, are not checked.

        Parameters
        ----------
        name : str
            Name of the index.
        progress_callback : callable, optional
            Receives a `lance_spark.Progress` from time to time.

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

    @takes_keywords(refused=_REFUSED)
    @reports_progress
    def create_scalar_index(
        self,
        column: str,
        index_type: str | IndexConfig,
        name: str | None = None,
        *,
        replace: bool = True,
        train: bool = True,
        fragment_ids: Collection[int] | None = None,
        num_segments: int = 1,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = 5,
        max_retries: int = 20,
        progress_callback: ProgressCallback | None = None,
        **options: Any,
    ) -> Self:
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
        train : bool
            Whether the index covers the rows of this version. Otherwise it is empty.
        fragment_ids : collection of int, optional
            Ids of the fragments to cover; all by default. Rows of other fragments are scanned.
        num_segments : int
            Number of segments. A segment of a ``JSON`` or ``RTREE`` index is made in memory.
        commit_message : str, optional
        transaction_properties : mapping of str to str, optional
            Stored in the transaction.
        conflict_retries : int
            Maximum number of times to create the index again after another client rewrote
            fragments.
        max_retries : int
            Maximum number of times to retry the commit after other clients committed first.
        progress_callback : callable, optional
            Receives a `lance_spark.Progress` from time to time.
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
            `lance_spark.scan.text.parameters.TextParameters`, for example ``with_position``, which
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
        from lance_spark.mutations.indexes.create import IndexRequest, config_of, create_index

        if "format_version" in options and options["format_version"] is None:
            # pylance takes this parameter for all index types, and ignores None.
            del options["format_version"]
        config = config_of(index_type, options)
        request = IndexRequest(
            column=spelled(self._table.schema.to_arrow(), column),
            index_type=config.index_type,
            name=name,
            replace=replace,
            train=train,
            fragment_ids=fragment_ids,
            num_segments=num_segments,
            options=config.parameters,
        )
        commit_options = CommitOptions.of(
            commit_message=commit_message,
            transaction_properties=transaction_properties,
            conflict_retries=conflict_retries,
            max_retries=max_retries,
        )
        return self._committed(create_index(self._table, request, commit_options))

    @takes_keywords(refused=REFUSED_OF_VECTORS)
    @reports_progress
    def create_index(
        self,
        column: str | Sequence[str],
        index_type: str | IndexConfig,
        name: str | None = None,
        metric: str = "L2",
        replace: bool = False,
        num_partitions: int | None = None,
        ivf_centroids: Any = None,
        pq_codebook: Any = None,
        num_sub_vectors: int | None = None,
        *,
        target_partition_size: int | None = None,
        train: bool = True,
        fragment_ids: Collection[int] | None = None,
        num_segments: int = 1,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = 5,
        max_retries: int = 20,
        progress_callback: ProgressCallback | None = None,
        **options: Any,
    ) -> Self:
        """Create an index of a column of vectors, which searches by `nearest` use.

        Vectors with null, infinite or NaN items are not in the index; with ``cosine``, vectors of
        length 0. If there is no vector, or there are fewer than codewords of ``PQ``, the index is
        empty: `optimize_indices` fills it when there are more rows.

        Parameters
        ----------
        column : str or sequence of str
            Name or dotted path of one column of vectors: fixed-size lists of float16, float32 or
            float64; of uint8 for ``IVF_FLAT`` and ``IVF_HNSW_FLAT``; or lists of these (several
            vectors in a row).
        index_type : str or IndexConfig
            ``IVF_FLAT`` (vectors as they are), ``IVF_SQ`` (a byte for each item), ``IVF_PQ`` (a
            byte, or 4 bits, for each of `num_sub_vectors` parts of a vector), ``IVF_RQ`` (some bits
            for each item), or ``IVF_HNSW_FLAT``, ``IVF_HNSW_SQ``, ``IVF_HNSW_PQ`` (the same with
            graphs, which need the package faiss, ``lance-spark[vectors]``).
        name : str, optional
            Name of the index; ``<column>_idx`` by default.
        metric : str
            ``l2`` (also ``euclidean``), ``cosine``, ``dot``, or ``hamming`` for uint8. Lists of
            vectors have ``cosine`` only.
        replace : bool
            Whether an index of the same name and column is replaced. Otherwise it is an error.
        num_partitions : int, optional
            Number of partitions, at most that of the vectors. By default, rows divided by
            `target_partition_size`, from 1 to 4,096.
        ivf_centroids : array of shape (partitions, dimension), optional
            Centroids in place of trained ones; numpy or Arrow.
        pq_codebook : array of shape (num_sub_vectors, 2 ** num_bits, items), optional
            Codewords in place of trained ones. Needs `ivf_centroids`.
        num_sub_vectors : int, optional
            Number of parts of a vector for ``PQ``, which divides the dimension; by default, parts
            have 16 items, or 8.
        target_partition_size : int, optional
            Rows of a partition: 4,096 by default for ``FLAT`` and ``RQ``, 8,192 for ``SQ`` and
            ``PQ``, and 1,048,576 for types with graphs.
        train : bool
            Whether the index covers the rows of this version. Otherwise it is empty.
        fragment_ids, num_segments, commit_message, transaction_properties, conflict_retries, \
        max_retries
            As for `create_scalar_index`. All segments have the same centroids and codewords.
        progress_callback : callable, optional
            Receives a `lance_spark.Progress` from time to time.
        **options
            ``num_bits``: bits of a codeword of ``PQ``, 8 (the default) or 4; of an item of ``RQ``,
            from 1 to 9, 5 by default. ``sample_rate``: rows that are read for each partition and
            each codeword, 256. ``max_iters``: most steps of a training, 50. ``rabitq_model``: JSON
            of a rotation for ``RQ``. ``skip_transpose``: whether codes of ``PQ`` are stored row
            after row. ``m`` (20), ``ef_construction`` (150), ``max_level`` (7): neighbors of a
            node, nodes that are compared, and levels of graphs. Options of pylance that choose how
            it computes, such as ``accelerator``, have no effect.

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
        from lance_spark.mutations.indexes.builders import builder_of
        from lance_spark.mutations.indexes.create import config_of
        from lance_spark.scan.vectors.metric import METRIC_KEYS

        vector_options = {
            "metric": metric,
            "num_partitions": num_partitions,
            "ivf_centroids": ivf_centroids,
            "pq_codebook": pq_codebook,
            "num_sub_vectors": num_sub_vectors,
            "target_partition_size": target_partition_size,
        }
        config = config_of(index_type, options)
        if metric == "L2" and any(key in config.parameters for key in METRIC_KEYS):
            # Another name of the parameter stands in the place of its default.
            del vector_options["metric"]
        if builder_of(config.index_type).train is None:
            raise InvalidInputError(
                f"index type {config.index_type!r} is not one of vectors: use create_scalar_index"
            )
        return self.create_scalar_index(
            one_column(column),
            config.index_type,
            name,
            replace=replace,
            train=train,
            fragment_ids=fragment_ids,
            num_segments=num_segments,
            commit_message=commit_message,
            transaction_properties=transaction_properties,
            conflict_retries=conflict_retries,
            max_retries=max_retries,
            **{key: value for key, value in vector_options.items() if value is not None},
            **config.parameters,
        )

    @reports_progress
    def optimize_indices(
        self,
        index_names: Sequence[str] | None = None,
        *,
        num_indices_to_merge: int = 1,
        retrain: bool = False,
        **keywords: Unpack[RetryProgressKeywords],
    ) -> Self:
        """Extend indexes to the fragments that they do not cover.

        Parameters
        ----------
        index_names : sequence of str, optional
            Names of indexes; by default all that this release can extend. A warning names others.
        num_indices_to_merge : int
            Number of the newest segments of an index that become one with the new rows. They are
            merged from their files if possible; else the rows of their fragments are read again.
            More than one segment are merged even if no rows are new. Segments that can have older
            values of new rows are merged in any case.
        retrain : bool
            Whether to create the indexes again over all fragments, in place of their segments.

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

        request = OptimizeRequest(
            names=index_names, num_indices_to_merge=num_indices_to_merge, retrain=retrain
        )
        options = CommitOptions.of(**keywords)
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


def one_column(column: str | Sequence[str]) -> str:
    """Return the name of the only column; pylance takes lists, too."""
    names = [column] if isinstance(column, str) else list(column)
    if len(names) != 1:
        raise InvalidInputError(f"an index has one column, not {len(names)}")
    return names[0]
