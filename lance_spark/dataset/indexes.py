"""The arguments of `Dataset` for indexes, declared once, and requests of builds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import spelled
from lance_spark.keywords import Keyword, checked, of_group, without_group
from lance_spark.progress import ProgressKeywords
from lance_spark.table.commit.options import RetryProgressKeywords

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.mutations.indexes.create import IndexConfig, IndexRequest

#: The metric of an index of vectors by default, as pylance spells it.
_DEFAULT_METRIC = "L2"


class RowsKeywords(TypedDict, total=False):
    """Which rows an index covers."""

    train: Annotated[
        bool,
        Keyword("Whether the index covers the rows of this version. Otherwise it is empty.", True),
    ]
    fragment_ids: Annotated[
        Collection[int] | None,
        Keyword(
            "Ids of the fragments to cover; all by default. Rows of other fragments are scanned."
        ),
    ]


class SegmentsKeywords(RowsKeywords, total=False):
    """Which rows an index covers, and in how many segments."""

    num_segments: Annotated[
        int,
        Keyword(
            "Number of segments. All segments of an index of vectors have the same centroids and "
            "codewords. A segment of a ``JSON`` or ``RTREE`` index is made in memory.",
            1,
        ),
    ]


class CreateIndexKeywords(SegmentsKeywords, RetryProgressKeywords, total=False):
    """Keywords of calls that create an index."""


class IndexSegmentKeywords(RowsKeywords, ProgressKeywords, total=False):
    """Keywords of a call that writes a segment of an index, without a commit."""


class ExtendKeywords(TypedDict, total=False):
    """How indexes are extended to rows that they do not cover."""

    num_indices_to_merge: Annotated[
        int,
        Keyword(
            "Number of the newest segments of an index that become one with the new rows. They are "
            "merged from their files if possible; else the rows of their fragments are read again. "
            "More than one segment are merged even if no rows are new. Segments that can have "
            "older values of new rows are merged in any case.",
            1,
        ),
    ]
    retrain: Annotated[
        bool,
        Keyword(
            "Whether to create the indexes again over all fragments, in place of their segments.",
            False,
        ),
    ]


class ExtendIndexesKeywords(ExtendKeywords, RetryProgressKeywords, total=False):
    """Keywords of `Dataset.optimize_indices`."""


def scalar_index(
    dataset: Dataset,
    /,
    column: str,
    index_type: str | IndexConfig,
    name: str | None = None,
    *,
    replace: bool = True,
    **options: Any,
) -> IndexRequest:
    """Return the request of `Dataset.create_scalar_index`, which documents the arguments.

    Raises
    ------
    InvalidInputError
        The type is no type, or options are given beside a configuration.
    """
    from lance_spark.mutations.indexes.create import IndexRequest, config_of

    parameters = without_group(CreateIndexKeywords, options)
    if parameters.get("format_version", 0) is None:
        # pylance takes this parameter for all index types, and ignores None.
        del parameters["format_version"]
    config = config_of(index_type, parameters)
    return IndexRequest(
        column=spelled(dataset._table.schema.to_arrow(), column),
        index_type=config.index_type,
        name=name,
        replace=replace,
        options=config.parameters,
        **checked(SegmentsKeywords, of_group(SegmentsKeywords, options)),
    )


def vector_index(
    dataset: Dataset,
    /,
    column: str | Sequence[str],
    index_type: str | IndexConfig,
    name: str | None = None,
    metric: str = _DEFAULT_METRIC,
    replace: bool = False,
    num_partitions: int | None = None,
    ivf_centroids: Any = None,
    pq_codebook: Any = None,
    num_sub_vectors: int | None = None,
    *,
    target_partition_size: int | None = None,
    **options: Any,
) -> IndexRequest:
    """Return the request of an index of vectors, or of a segment of any index.

    `Dataset.create_index` and `create_index_uncommitted` have the parameters of this function.

    Parameters
    ----------
    column : str or sequence of str
        Name or dotted path of one column. Vectors are fixed-size lists of float16, float32 or
        float64; of uint8 for ``IVF_FLAT`` and ``IVF_HNSW_FLAT``; or lists of these (several
        vectors in a row).
    index_type : str or IndexConfig
        ``IVF_FLAT`` (vectors as they are), ``IVF_SQ`` (a byte for each item), ``IVF_PQ`` (a byte,
        or 4 bits, for each of `num_sub_vectors` parts of a vector), ``IVF_RQ`` (some bits for each
        item), or ``IVF_HNSW_FLAT``, ``IVF_HNSW_SQ``, ``IVF_HNSW_PQ`` (the same with graphs, which
        need the package faiss, ``lance-spark[vectors]``).
    name : str, optional
        Name of the index; ``<column>_idx`` by default.
    metric : str
        ``l2`` (also ``euclidean``), ``cosine``, ``dot``, or ``hamming`` for uint8. Lists of vectors
        have ``cosine`` only.
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
        Number of parts of a vector for ``PQ``, which divides the dimension; by default, parts have
        16 items, or 8.
    target_partition_size : int, optional
        Rows of a partition: 4,096 by default for ``FLAT`` and ``RQ``, 8,192 for ``SQ`` and ``PQ``,
        and 1,048,576 for types with graphs.
    **options
        ``num_bits``: bits of a codeword of ``PQ``, 8 (the default) or 4; of an item of ``RQ``, from
        1 to 9, 5 by default. ``sample_rate``: rows that are read for each partition and each
        codeword, 256. ``max_iters``: most steps of a training, 50. ``rabitq_model``: JSON of a
        rotation for ``RQ``. ``skip_transpose``: whether codes of ``PQ`` are stored row after row.
        ``m`` (20), ``ef_construction`` (150), ``max_level`` (7): neighbors of a node, nodes that
        are compared, and levels of graphs. Options of pylance that choose how it computes, such as
        ``accelerator``, have no effect.

    Raises
    ------
    InvalidInputError
        The type is no type, a parameter is given twice, or there is not one column.
    """
    from lance_spark.indexes.builds import builder_of
    from lance_spark.mutations.indexes.create import IndexRequest, config_of

    config = config_of(index_type, without_group(CreateIndexKeywords, options))
    named = {
        "metric": metric,
        "num_partitions": num_partitions,
        "ivf_centroids": ivf_centroids,
        "pq_codebook": pq_codebook,
        "num_sub_vectors": num_sub_vectors,
        "target_partition_size": target_partition_size,
    }
    if builder_of(config.index_type).train is None:
        named["metric"] = None
    names = [column] if isinstance(column, str) else list(column)
    if len(names) != 1:
        raise InvalidInputError(f"an index has one column, not {len(names)}")
    return IndexRequest(
        column=spelled(dataset._table.schema.to_arrow(), names[0]),
        index_type=config.index_type,
        name=name,
        replace=replace,
        options=_with_named(config.parameters, named),
        **checked(SegmentsKeywords, of_group(SegmentsKeywords, options)),
    )


def check_vectors(index_type: str) -> None:
    """Check that a type of index is one of vectors.

    Raises
    ------
    InvalidInputError
    """
    from lance_spark.indexes.builds import builder_of

    if builder_of(index_type).train is None:
        raise InvalidInputError(
            f"index type {index_type!r} is not one of vectors: use create_scalar_index"
        )


def _with_named(parameters: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a type with those that are arguments; None is left out."""
    from lance_spark.indexes.vectors.columns import METRIC_KEYS

    if named["metric"] == _DEFAULT_METRIC and any(key in parameters for key in METRIC_KEYS):
        # Another name of the parameter stands in the place of its default.
        named = {**named, "metric": None}
    given = {key: value for key, value in named.items() if value is not None}
    twice = sorted(given.keys() & parameters.keys())
    if twice:
        raise InvalidInputError(f"{twice[0]} is given twice: also in the parameters of the type")
    return {**given, **parameters}
