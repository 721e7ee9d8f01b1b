"""A PySpark data source for the Lance table and file format.

`spark.read.format("lance")` needs no import. `enable(spark)` lets Spark push columns, filters,
limits and counts down to it. `LanceTable` changes tables with Spark jobs. `open_dataset` and
`write_dataset` read and write tables without Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_spark._version import __version__

__all__ = [
    "BasePath",
    "Dataset",
    "LanceError",
    "LanceTable",
    "__version__",
    "enable",
    "is_enabled",
    "open_dataset",
    "write_dataset",
]

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset, open_dataset
    from lance_spark.dataset.write import write_dataset
    from lance_spark.errors import LanceError
    from lance_spark.spark.pushdown.enable import enable, is_enabled
    from lance_spark.spark.table import LanceTable
    from lance_spark.table.paths import BasePath


def __getattr__(name: str) -> Any:
    # Executors and the planning worker need only some sub-packages, so names are imported at their
    # first use.
    if name == "LanceError":
        from lance_spark.errors import LanceError

        return LanceError
    if name == "BasePath":
        from lance_spark.table.paths import BasePath

        return BasePath
    if name == "write_dataset":
        from lance_spark.dataset.write import write_dataset

        return write_dataset
    if name == "LanceTable":
        from lance_spark.spark.table import LanceTable

        return LanceTable
    if name in ("enable", "is_enabled"):
        from lance_spark.spark.pushdown import enable

        return getattr(enable, name)
    if name in __all__:
        from lance_spark.dataset import dataset

        return getattr(dataset, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
