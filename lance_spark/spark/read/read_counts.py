"""Counters of reads for Spark's web interface: what a task has read, as `ReadCounts.java` gets it.

A worker of pyspark sends the values of its accumulators to the JVM when a task ends. The rule of
Spark's optimizer gives the scan an accumulator of its own, which finds the text `lance-read
NUMBERS;` in the pickle of such a value.
"""

from __future__ import annotations

from pyspark.accumulators import Accumulator, AccumulatorParam

from lance_spark.scan.metrics import ScanMetrics

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
    Accumulator(_ID, f"lance-read {' '.join(map(str, numbers))};", AccumulatorParam[str]())
