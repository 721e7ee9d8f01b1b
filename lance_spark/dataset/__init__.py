"""The handle on a Lance table without Spark: open, scan, take, change and write."""

from __future__ import annotations

from lance_spark.dataset.dataset import Dataset, open_dataset

__all__ = ["Dataset", "open_dataset"]
