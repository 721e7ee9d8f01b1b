"""Counters of reads for Spark's web interface: what a task has read, as `ReadCounts.java` gets it.

A worker of pyspark sends the values of its accumulators to the JVM when a task ends. The rule of
Spark's optimizer gives the scan an accumulator of its own, which gets the pickle of such a value
with a reply (`lance_spark.spark.replies`): `counts` has the numbers in the order of `report`.
"""

from __future__ import annotations

from pyspark.accumulators import Accumulator, AccumulatorParam

from lance_spark.scan.metrics import ScanMetrics
from lance_spark.spark.replies import reply_of

#: Not a number of Spark's own accumulators.
_ID = -1


def report(metrics: ScanMetrics) -> None:
    """Leave the counters of a scan to the worker that runs it."""
    numbers = (
        metrics.iops,
        metrics.bytes_read,
        metrics.files_opened,
        metrics.read_time_ns,
        metrics.decode_time_ns,
    )
    # An accumulator is sent if it exists.
    Accumulator(_ID, reply_of("read", counts=numbers), AccumulatorParam[bytes]())
