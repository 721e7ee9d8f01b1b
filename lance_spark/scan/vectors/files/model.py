"""What the files of a segment have beside rows."""

from __future__ import annotations

from dataclasses import dataclass

from lance_spark.scan.vectors.ivf import Int64Array, Ivf
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.quantizers.quantizer import Quantizer


@dataclass(frozen=True, slots=True)
class Model:
    """What the files of a segment have beside rows. It is kept in the cache.

    Attributes
    ----------
    index_type : str
        Such as IVF_PQ.
    metric : Metric
    ivf : Ivf
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
    def nbytes(self) -> int:
        """Bytes in memory."""
        ivf = self.ivf
        buffers = sum(map(len, self.quantizer.buffers()))
        return ivf.centroids.nbytes + ivf.offsets.nbytes + ivf.lengths.nbytes + buffers
