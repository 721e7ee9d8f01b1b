"""The contract of a file that is being written."""

from __future__ import annotations

from typing import Any, Protocol


class OutputFile(Protocol):
    """A file that is written sequentially.

    `name` is the name of the file in errors. The file may be visible while it is incomplete, as no
    version refers to it before its writer commits.
    """

    name: str

    def write(self, buffer: Any) -> None:
        """Append the bytes of any C-contiguous buffer: bytes, numpy array, pyarrow.Buffer.

        Raises
        ------
        StorageError
            The store failed, a full disk included.
        """
        ...

    def tell(self) -> int:
        """Return the bytes written so far."""
        ...

    def close(self) -> None:
        """Make the file durable. After a failure it is removed.

        Raises
        ------
        StorageError
            The store failed.
        """
        ...

    def abort(self) -> None:
        """Delete the file, unless it is closed."""
        ...
