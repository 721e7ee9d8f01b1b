"""Counters of a scan, with the names that the Java connector uses.

| name | content |
| --- | --- |
| numFragmentsScanned | fragments whose files were opened |
| numBatchesLoaded | batches that were returned |
| numRowsScanned | rows of these batches |
| numIops | reads sent to the store, after merging; on local disks, ranges of the memory map |
| numRequests | rounds of reads, each of all ranges that were needed at a time |
| numBytesRead | bytes of these reads |
| batchLoadTimeNs | time for which the consumer waited |

It has no names for these, nor for the effect of filters:

| name | content |
| --- | --- |
| numFilesOpened | data files that were opened |
| readTimeNs | time for which the scan waited for the store; 0 on local disks, which are mapped |
| decodeTimeNs | the other time in which the scan made batches |
| numRowsFiltered | live rows that did not meet a filter |
| numRowsSkipped | rows that statistics ruled out, so that no filter was evaluated |
| numWindows | windows on which filters were evaluated |
| numWindowsSkipped | windows without a matching row; only the columns of filters were read |

Reads of deletion files, overlays and blobs beside the data files are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lance_spark.storage.source import ByteSource


@dataclass(slots=True)
class ScanMetrics:
    """Counters of one task, or the sum of several tasks. Can be pickled."""

    fragments_scanned: int = 0
    batches_loaded: int = 0
    rows_scanned: int = 0
    iops: int = 0
    requests: int = 0
    bytes_read: int = 0
    batch_load_time_ns: int = 0
    rows_filtered: int = 0
    rows_skipped: int = 0
    windows: int = 0
    windows_skipped: int = 0
    files_opened: int = 0
    read_time_ns: int = 0
    scan_time_ns: int = 0

    def add_source(self, source: ByteSource) -> None:
        """Add the reads of a file since it was opened or last added."""
        counts = getattr(source, "counts", None)
        if counts is not None:
            self.iops += counts.reads
            self.requests += counts.requests
            self.bytes_read += counts.bytes
            self.files_opened += counts.files
            self.read_time_ns += counts.nanoseconds
            counts.clear()

    def __iadd__(self, other: ScanMetrics) -> ScanMetrics:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    @property
    def decode_time_ns(self) -> int:
        """Time in which the scan made batches, without the time for which it waited for bytes."""
        return max(self.scan_time_ns - self.read_time_ns, 0)

    def as_dict(self) -> dict[str, int]:
        """Return the counters by their names."""
        return {name: getattr(self, field) for field, name in _NAMES.items()}

    def summary(self) -> str:
        """Return one line for a log."""
        return " ".join(f"{name}={value}" for name, value in self.as_dict().items())


_NAMES = {
    "fragments_scanned": "numFragmentsScanned",
    "batches_loaded": "numBatchesLoaded",
    "rows_scanned": "numRowsScanned",
    "iops": "numIops",
    "requests": "numRequests",
    "bytes_read": "numBytesRead",
    "batch_load_time_ns": "batchLoadTimeNs",
    "rows_filtered": "numRowsFiltered",
    "rows_skipped": "numRowsSkipped",
    "windows": "numWindows",
    "windows_skipped": "numWindowsSkipped",
    "files_opened": "numFilesOpened",
    "read_time_ns": "readTimeNs",
    "decode_time_ns": "decodeTimeNs",
}
