"""What a scan read, for `scan_stats_callback` and `Scanner.analyze_plan`."""

from __future__ import annotations

from dataclasses import dataclass, field

from lance_spark.scan.metrics import ScanMetrics


@dataclass(frozen=True, slots=True)
class ScanStatistics:
    """Counters of a scan that has ended.

    Reads of deletion files and of indexes are not counted.

    Attributes
    ----------
    iops : int
        Reads that were sent to the store.
    requests : int
        Rounds of reads, each of all ranges that were needed at a time.
    bytes_read : int
    all_counts : mapping of str to int
        All counters by their names; times are in nanoseconds.
    """

    iops: int = 0
    requests: int = 0
    bytes_read: int = 0
    all_counts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, metrics: ScanMetrics) -> ScanStatistics:
        """Return the statistics of the counters of a scan."""
        return cls(metrics.iops, metrics.requests, metrics.bytes_read, metrics.as_dict())
