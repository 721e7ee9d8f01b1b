"""Tables with tags and branches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import lance_spark

ROWS = pa.table({"id": pa.array(range(4), pa.int64())})


def named(dataset: lance_spark.Dataset) -> dict[str, Any]:
    """Return the tags and branches of a table, with their versions."""
    tags = {name: tag["version"] for name, tag in dataset.tags.list().items()}
    branch_versions = {
        name: branch["parent_version"] for name, branch in dataset.branches.list().items()
    }
    return tags | branch_versions
