"""A PySpark data source for the Lance table and file format.

`spark.read.format("lance")` needs no import. This package exports the rest of the public API:

- `open_dataset`, `write_dataset`, `Dataset`: tables without Spark (`lance_spark.dataset`)
- `LanceTable`, `MergeBuilder`, `ChangeResult`: changes of tables by Spark jobs
- `enable`, `is_enabled`: push-down of columns, filters, limits and aggregates
- `cache_stats`, `CacheStats`: what this process keeps of tables
- `BasePath`, `IndexConfig`, `ManifestStore`, `ManifestEntry`, `batch_udf`: arguments of the above
- `Progress`: what the `progress_callback` of calls that can take long receives
- `lance_spark.errors`: the errors; `lance_spark.inspect`: reports about tables

Modules, packages and names that no `__all__` of these packages lists are internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_spark._lazy import lazy_exports
from lance_spark._version import __version__

if TYPE_CHECKING:
    from lance_spark import errors
    from lance_spark.dataset.dataset import Dataset, open_dataset
    from lance_spark.dataset.session import cache_stats
    from lance_spark.dataset.write import write_dataset
    from lance_spark.errors import LanceError
    from lance_spark.mutations.columns.fill import batch_udf
    from lance_spark.mutations.indexes.create import IndexConfig
    from lance_spark.progress import Progress
    from lance_spark.spark.jvm.enable import enable, is_enabled
    from lance_spark.spark.table import ChangeResult, LanceTable, MergeBuilder
    from lance_spark.storage.commit import ManifestEntry, ManifestStore
    from lance_spark.storage.memory import CacheStats
    from lance_spark.table.paths import BasePath

__all__ = [
    "BasePath",
    "CacheStats",
    "ChangeResult",
    "Dataset",
    "IndexConfig",
    "LanceError",
    "LanceTable",
    "ManifestEntry",
    "ManifestStore",
    "MergeBuilder",
    "Progress",
    "__version__",
    "batch_udf",
    "cache_stats",
    "enable",
    "errors",
    "is_enabled",
    "open_dataset",
    "write_dataset",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(
        globals(),
        {
            "BasePath": "lance_spark.table.paths",
            "CacheStats": "lance_spark.storage.memory",
            "ChangeResult": "lance_spark.spark.table",
            "Dataset": "lance_spark.dataset.dataset",
            "IndexConfig": "lance_spark.mutations.indexes.create",
            "LanceError": "lance_spark.errors",
            "LanceTable": "lance_spark.spark.table",
            "ManifestEntry": "lance_spark.storage.commit",
            "ManifestStore": "lance_spark.storage.commit",
            "MergeBuilder": "lance_spark.spark.table",
            "Progress": "lance_spark.progress",
            "batch_udf": "lance_spark.mutations.columns.fill",
            "cache_stats": "lance_spark.dataset.session",
            "enable": "lance_spark.spark.jvm.enable",
            "errors": "lance_spark.errors",
            "is_enabled": "lance_spark.spark.jvm.enable",
            "open_dataset": "lance_spark.dataset.dataset",
            "write_dataset": "lance_spark.dataset.write",
        },
    )
