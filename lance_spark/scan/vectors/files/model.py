"""The model of a vector index, which a build learns from a sample or a reader takes from files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lance_spark.scan.vectors.ivf import Int64Array, Ivf, Vectors
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.quantizers.quantizer import Quantizer


@dataclass(frozen=True, slots=True, eq=False)
class VectorModel:
    """What the segments of an index have in common, and the partitions of a segment.

    A reader keeps it in the cache. The tasks of a build get it by pickle.

    Attributes
    ----------
    index_type : str
        Such as IVF_PQ.
    metric : Metric
    ivf : Ivf
        Partitions without rows, if the model belongs to no segment.
    quantizer : Quantizer
    positions : int64 array or None
        Positions of the partitions in a file of an old release (`legacy`).
    """

    index_type: str
    metric: Metric
    ivf: Ivf
    quantizer: Quantizer
    positions: Int64Array | None = None

    @property
    def centroids(self) -> Vectors:
        """The centroids: shape (partitions, dimension), in the type of the column."""
        return self.ivf.centroids

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        buffers = sum(map(len, self.quantizer.buffers()))
        return self.centroids.nbytes + self.ivf.offsets.nbytes + self.ivf.lengths.nbytes + buffers

    def is_same(self, other: VectorModel) -> bool:
        """Return whether codes of the other model are codes of this one."""
        return (
            self.index_type == other.index_type
            and self.metric is other.metric
            and self.centroids.dtype == other.centroids.dtype
            and np.array_equal(self.centroids, other.centroids)
            and _content(self.quantizer) == _content(other.quantizer)
        )


def _content(quantizer: Quantizer) -> tuple[object, ...]:
    """Return all that codes depend on."""
    # Files can have the same codes in different orders.
    buffers = quantizer.buffers()
    metadata = dict(quantizer.metadata(range(len(buffers))))
    for name in ("transposed", "packed"):
        metadata.pop(name, None)
    return quantizer.name, metadata, tuple(buffers)
