"""Rows in memory, for the operations of pyarrow's datasets that need all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_spark.table.sources import table_of

if TYPE_CHECKING:
    import pyarrow.dataset as pads


def in_memory(data: Any) -> pads.InMemoryDataset:
    """Return rows in any form that `write_dataset` takes as a dataset of pyarrow."""
    import pyarrow.dataset as pads

    return pads.InMemoryDataset(table_of(data))
