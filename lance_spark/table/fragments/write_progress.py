"""`FragmentWriteProgress`: what a caller wants to know of each fragment that is written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from lance_spark.errors import InvalidInputError
from lance_spark.table.fragments.fragment import Fragment


class FragmentWriteProgress(ABC):
    """Told of each fragment that a write makes, in the thread of the call.

    An error of a method ends the write before its commit, and its files are deleted. Objects of
    pylance's class of this name can be given, too.

    Examples
    --------
    >>> class Printed(FragmentWriteProgress):
    ...     def begin(self, fragment, **kwargs):
    ...         print("begin")
    ...
    ...     def complete(self, fragment, **kwargs):
    ...         print(fragment.physical_rows, "rows")
    """

    @abstractmethod
    def begin(self, fragment: Fragment, **kwargs: Any) -> None:
        """Receive a fragment before its file is written: without an id, files and rows."""

    @abstractmethod
    def complete(self, fragment: Fragment, **kwargs: Any) -> None:
        """Receive a fragment whose file is written. The commit gives it its id."""


def check_observer(progress: object) -> None:
    """Raise InvalidInputError for an object without the methods of `FragmentWriteProgress`."""
    for name in ("begin", "complete"):
        if progress is not None and not callable(getattr(progress, name, None)):
            raise InvalidInputError(
                "progress must be a FragmentWriteProgress, with methods begin and complete, not "
                f"{type(progress).__name__}"
            )
