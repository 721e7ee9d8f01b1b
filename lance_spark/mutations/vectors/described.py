"""What vector indexes tell of themselves: type, numbers, and what their segments have in common."""

from __future__ import annotations

from typing import Any

from lance_spark.mutations.indexes.described import Described
from lance_spark.mutations.vectors.parameters import METRICS
from lance_spark.proto import index_pb2
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.scan.vectors.details import details_of, index_type_of
from lance_spark.scan.vectors.files.segment import open_segment

#: Partitions that are read at once.
_PARTITIONS = 64


def _statistics(files: IndexFiles) -> dict[str, Any]:
    opened = open_segment(files)
    if opened is None:
        return {}
    buffers = opened.quantizer.buffers()
    return {
        "index_type": opened.index_type,
        "metric_type": opened.metric.value,
        "num_partitions": opened.ivf.num_partitions,
        "partitions": [{"size": size} for size in opened.ivf.lengths.tolist()],
        "loss": opened.ivf.loss,
        "sub_index": {
            "index_type": opened.quantizer.name,
            **opened.quantizer.metadata(range(1, len(buffers) + 1)),
        },
    }


def _meaning(files: IndexFiles) -> dict[str, Any]:
    # The distances of quantizers have different scales.
    details, dtype = details_of(files.segment), index_type_of(files.segment)
    metric = details.metric_type
    if details.WhichOneof("compression") is None:
        # Early releases of pylance recorded both in the files only.
        opened = open_segment(files)
        if opened is not None:
            metric, dtype = METRICS[opened.metric], opened.index_type
    return {"type": dtype, "metric": index_pb2.VectorMetricType.Name(metric)}


def prewarm(files: IndexFiles) -> None:
    """Read the partitions of a segment into the cache."""
    segment = open_segment(files)
    if segment is None:
        return
    count = len(segment.ivf.lengths)
    for start in range(0, count, _PARTITIONS):
        numbers = range(start, min(start + _PARTITIONS, count))
        segment.partitions(numbers)
        if segment.graphs is not None:
            segment.graphs.open(numbers)


DESCRIBED = Described(type_of=index_type_of, statistics=_statistics, meaning=_meaning)
