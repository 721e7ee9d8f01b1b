"""What a scan read and what it left out, under the names that the Java connector gives such counters.

| name | content |
| --- | --- |
| numFragmentsScanned | fragments whose files were opened |
| numBatchesLoaded | batches handed out |
| numRowsScanned | rows in them |
| numIops | reads that were sent to the store, neighbours merged; on local disks, ranges of the map |
| numRequests | rounds of reads, each of all ranges that were needed at a time |
| numBytesRead | bytes of them |
| batchLoadTimeNs | time for which the consumer waited |

The Java connector has no names for what filters spare:

| name | content |
| --- | --- |
| numRowsFiltered | live rows that did not meet a filter |
| numRowsSkipped | rows that statistics ruled out, which were not looked at |
| numWindows, numWindowsSkipped | windows that were looked at, and those without survivors, of which only the filters' columns were read |

Reads of deletion files, overlays and blobs beside the data files are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lance_spark.storage.source import ByteSource


@dataclass(slots=True)
class ScanMetrics:
    """Counters of one task, or of several once they are added up. Can be pickled."""

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

    def add_source(self, source: ByteSource) -> None:
        """Add what was read of a file since it was opened, or counted for the last time."""
        counts = getattr(source, "counts", None)
        if counts is not None:
            self.iops += counts.reads
            self.requests += counts.requests
            self.bytes_read += counts.bytes
            counts.clear()

    def __iadd__(self, other: ScanMetrics) -> ScanMetrics:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    def as_dict(self) -> dict[str, int]:
        """Return the counters by their names."""
        return {_NAMES[field.name]: getattr(self, field.name) for field in fields(self)}

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
}
