"""What an index has learned from a sample: its centroids and quantizer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lance_spark.scan.vectors.files.segment import VectorSegment
from lance_spark.scan.vectors.ivf import Vectors
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.quantizers.quantizer import Quantizer


@dataclass(frozen=True, slots=True, eq=False)
class VectorModel:
    """The centroids and the quantizer of an index. All its tasks have the same. Can be pickled.

    Attributes
    ----------
    index_type : str
        Such as IVF_PQ.
    metric : Metric
    centroids : array of shape (partitions, dimension)
        In the type of the column.
    quantizer : Quantizer
    """

    index_type: str
    metric: Metric
    centroids: Vectors
    quantizer: Quantizer

    @classmethod
    def of(cls, segment: VectorSegment) -> VectorModel:
        """Return the model of an existing segment."""
        centroids = segment.ivf.centroids
        return cls(segment.index_type, segment.metric, centroids, segment.quantizer)

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
