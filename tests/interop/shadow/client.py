"""Both packages behind one interface, by pylance's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import lance
import lance.fragment
import pyarrow as pa

import lance_spark
from lance_spark import dataset as ours
from lance_spark import query

_DATASET = import_module("lance.dataset")
_OPTIMIZE = import_module("lance.optimize")


@dataclass(frozen=True)
class Client:
    """One of the two packages."""

    name: str
    write: Callable[..., Any]
    open: Callable[..., Any]
    commit: Callable[..., Any]
    commit_batch: Callable[..., Any]
    write_fragments: Callable[..., Any]
    Operation: Any
    Fragment: Any
    FragmentMetadata: Any
    ColumnOrdering: Any
    DataFile: Any
    BasePath: Any
    #: Names of `lance.optimize`.
    optimize: Any
    #: Names of `lance.file`.
    files: Any
    #: Names of `lance`: blobs, schemas.
    names: Any
    #: Classes of full-text queries.
    query: Any

    def rows(self, path: Path, **options: Any) -> pa.Table:
        """Return the rows of the newest version."""
        return self.open(path).to_table(**options)


PYLANCE = Client(
    "pylance",
    lance.write_dataset,
    lance.dataset,
    lance.LanceDataset.commit,
    lance.LanceDataset.commit_batch,
    lance.fragment.write_fragments,
    lance.LanceOperation,
    lance.LanceFragment,
    lance.FragmentMetadata,
    _DATASET.ColumnOrdering,
    lance.fragment.DataFile,
    lance.DatasetBasePath,
    _OPTIMIZE,
    import_module("lance.file"),
    lance,
    import_module("lance.query"),
)
OURS = Client(
    "this package",
    lance_spark.write_dataset,
    lance_spark.open_dataset,
    lance_spark.Dataset.commit,
    lance_spark.Dataset.commit_batch,
    ours.write_fragments,
    ours.LanceOperation,
    ours.DatasetFragment,
    ours.Fragment,
    ours.ColumnOrdering,
    ours.DataFile,
    lance_spark.BasePath,
    ours,
    ours,
    ours,
    query,
)
