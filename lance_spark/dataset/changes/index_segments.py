"""Methods of `Dataset` that build, merge and commit the segments of an index one by one."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from lance_spark.arguments import takes_keywords
from lance_spark.dataset.history import HistoryMethods
from lance_spark.dataset.indexes import REFUSED_OF_VECTORS
from lance_spark.progress import ProgressCallback, reports_progress
from lance_spark.table.commit.options import CommitKeywords, CommitOptions

if TYPE_CHECKING:
    from lance_spark.dataset.facts.session import Session
    from lance_spark.mutations.indexes.create import IndexConfig
    from lance_spark.table.indexes.metadata import Index


class SegmentMethods(HistoryMethods):
    """Methods of `Dataset` for programs that distribute the build of an index themselves."""

    def session(self) -> Session:
        """Return the cache of index files, which all tables of the process share."""
        from lance_spark.dataset.facts.session import Session

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
        from lance_spark.dataset.facts.session import prewarm

        prewarm(self._table, name, index_segments, with_position=with_position)

    @takes_keywords(refused=REFUSED_OF_VECTORS)
    @reports_progress
    def create_index_uncommitted(
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
        progress_callback: ProgressCallback | None = None,
        **options: Any,
    ) -> Index:
        """Write one segment of an index, over some fragments. No version refers to its files.

        Each worker builds a segment; one process commits them by `commit_existing_index_segments`.
        Vectors: give all workers the same `ivf_centroids`, and `pq_codebook`, so that their
        segments can be merged.

        Parameters
        ----------
        column, name, fragment_ids, train
            As in `create_scalar_index`; `fragment_ids` must be given.
        index_type : str or IndexConfig
            A type of `create_scalar_index` or of `create_index`.
        replace : bool
            Has no effect: the commit decides.
        metric, num_partitions, ivf_centroids, pq_codebook, num_sub_vectors, target_partition_size
            As in `create_index`, for columns of vectors.
        progress_callback : callable, optional
            Receives a `lance_spark.Progress` from time to time.
        **options
            Parameters of the type.

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
        from lance_spark.dataset.indexes import one_column
        from lance_spark.mutations.indexes.builders import builder_of
        from lance_spark.mutations.indexes.create import IndexRequest, config_of
        from lance_spark.mutations.indexes.uncommitted import build_segment
        from lance_spark.table.indexes.metadata import index_of

        config = config_of(index_type, options)
        vector_options = {
            "num_partitions": num_partitions,
            "ivf_centroids": ivf_centroids,
            "pq_codebook": pq_codebook,
            "num_sub_vectors": num_sub_vectors,
            "target_partition_size": target_partition_size,
        }
        if builder_of(config.index_type).train is not None:
            vector_options["metric"] = metric
        request = IndexRequest(
            column=one_column(column),
            index_type=config.index_type,
            name=name,
            train=train,
            fragment_ids=fragment_ids,
            options={
                **{key: value for key, value in vector_options.items() if value is not None},
                **config.parameters,
            },
        )
        return index_of(build_segment(self._table, request))

    @reports_progress
    def merge_existing_index_segments(
        self, segments: Sequence[Any], *, progress_callback: ProgressCallback | None = None
    ) -> Index:
        """Write one segment in place of several; no version refers to its files.

        Parameters
        ----------
        segments : sequence of Index
            Segments of one column and type, which cover different fragments. Segments of vectors
            must have one metric, segments of texts one tokenizer. The segments are not deleted.
        progress_callback : callable, optional
            Receives a `lance_spark.Progress` from time to time.

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
        from lance_spark.table.indexes.metadata import index_of, segment_of

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
        from lance_spark.table.indexes.metadata import segment_of

        options = CommitOptions.of(**keywords)
        built = list(map(segment_of, segments))
        return self._committed(commit_built(self._table, index_name, column, built, options))
