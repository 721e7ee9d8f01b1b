"""What all quantizers have in common.

| quantizer | module | index types |
| --- | --- | --- |
| FLAT | `flat` | IVF_FLAT, IVF_HNSW_FLAT |
| SQ | `scalar` | IVF_SQ, IVF_HNSW_SQ |
| PQ | `product` | IVF_PQ, IVF_HNSW_PQ |
| RQ | `rabit.quantizer` | IVF_RQ |

A quantizer turns vectors into codes, which are columns of a file with a row for each vector. It is
the same for all partitions of a segment. With `cosine` it gets vectors and queries of length 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.scan.vectors.ivf import Int64Array, Vectors
from lance_spark.scan.vectors.quantizers.partial import Decoded

Distances = npt.NDArray[np.float32]


class Partition(Protocol):
    """The decoded vectors of one partition, ready to be measured. It is kept in the cache.

    Attributes
    ----------
    num_rows : int
    nbytes : int
        Bytes in memory.
    """

    @property
    def num_rows(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def distances(self, queries: Vectors, rows: Int64Array | None = None) -> Distances:
        """Return the distances of vectors from each query.

        Parameters
        ----------
        queries : array of shape (queries, dimension)
        rows : int64 array, optional
            Rows of the partition to measure; all by default.

        Returns
        -------
        float32 array of shape (queries, rows)
            As pylance has them in `_distance` without refinement: for `cosine`, FLAT gives
            1 - cosine, and others give the squared L2 distance of vectors of length 1.
        """

    def decoded(self, queries: Vectors, rows: Int64Array) -> Decoded | None:
        """Return what `distances` compares, if it is vectors; None otherwise.

        Parameters
        ----------
        queries : array of shape (queries, dimension)
        rows : int64 array
            Rows of the partition.
        """

    def measure(self, query: Vectors) -> Callable[[Int64Array], Distances]:
        """Return a function that measures rows, which is called often with few rows.

        Parameters
        ----------
        query : array of shape (dimension,)
        """

    def vectors(self) -> Vectors:
        """Return the decoded vectors, from which a graph is built: their distances are in order.

        Returns
        -------
        float32 array of shape (rows, dimension); uint8 for `hamming`
            The differences from the centroid, if these have codes.
        """


class Quantizer(Protocol):
    """Stores the vectors of a segment as codes. Can be pickled.

    Attributes
    ----------
    name : str
        FLAT, SQ, PQ or RQ.
    dimension : int
        Items of a vector.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    @property
    def fields(self) -> pa.Schema:
        """The columns of codes in the file, without `_rowid`."""

    def metadata(self, buffers: Sequence[int]) -> Mapping[str, Any]:
        """Return the object in `storage_metadata` of the file.

        Parameters
        ----------
        buffers : sequence of int
            Numbers of the global buffers that have `buffers()`.
        """

    def buffers(self) -> Sequence[bytes]:
        """Return the contents of global buffers, such as a codebook."""

    def encode(self, vectors: Vectors, centroids: Vectors) -> pa.RecordBatch:
        """Return the codes of vectors.

        Rows are independent of each other: they can be sorted, concatenated and sent between tasks.

        Parameters
        ----------
        vectors : array of shape (rows, dimension)
            Without NaN.
        centroids : array of shape (rows, dimension)
            The centroid of the partition of each vector.
        """

    def stored(self, codes: pa.RecordBatch) -> pa.RecordBatch:
        """Return the codes of all rows of one partition in the order of bytes that files have."""

    def unstored(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return the codes of a partition of a file, with rows that are independent again."""

    def open_partition(self, stored: pa.RecordBatch, centroid: Vectors) -> Partition:
        """Return a partition of a file.

        Parameters
        ----------
        stored : pa.RecordBatch
            The columns `fields`, as the file has them.
        centroid : array of shape (dimension,)

        Raises
        ------
        CorruptFileError
            The columns do not have the form that the metadata promise.
        """
