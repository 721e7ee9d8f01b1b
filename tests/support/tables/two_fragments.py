"""A table of two fragments. The id of a row shows its position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from lance_spark import write_dataset

ROWS = pa.table({"id": pa.array(range(6)), "v": pa.array([0] * 6)})


def new_table(path: Path, **options: Any) -> Path:
    """Write ids 0 to 3, then 4 and 5."""
    write_dataset(ROWS, str(path), max_rows_per_file=4, **options)
    return path
