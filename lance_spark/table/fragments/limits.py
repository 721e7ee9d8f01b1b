"""The sizes at which a data file is closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

#: The limits of files that pylance and the Java connector use.
DEFAULT_MAX_ROWS_PER_FILE = 1024 * 1024
DEFAULT_MAX_BYTES_PER_FILE = 90 * 1024**3


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """Limits of a data file, which is closed at exactly these rows, or at least these bytes."""

    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE

    @classmethod
    def of(cls, max_rows_per_file: int | None, max_bytes_per_file: int | None) -> Self:
        """Return the limits; None means the default."""
        return cls(
            DEFAULT_MAX_ROWS_PER_FILE if max_rows_per_file is None else max_rows_per_file,
            DEFAULT_MAX_BYTES_PER_FILE if max_bytes_per_file is None else max_bytes_per_file,
        )
