"""Files while they are written."""

from __future__ import annotations

from typing import Any, Protocol


class OutputFile(Protocol):
    """A file that is written from start to end.

    `name` is what errors call the file. Nobody refers to the file before its writer says so: it may
    be visible half written.
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
        """Make the file durable; on failure it is removed.

        Raises
        ------
        StorageError
            The store failed.
        """
        ...

    def abort(self) -> None:
        """Delete the file; does nothing once it is closed."""
        ...
