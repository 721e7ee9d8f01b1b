"""Loops over values that numba compiles, if it is installed (`lance-spark[numba]`).

Each loop has a function of numpy that does the same. To load numba takes time and memory, so a
process uses a loop only after it has done much of its work without it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any

_LOG = logging.getLogger(__name__)


class CompiledLoop:
    """A loop that this process uses after much work without it.

    - `function`, `signature`: See `compiled_loop`.
    - `min_items`: Number of items after which numba is loaded.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signature: Callable[[Any], Any],
        min_items: int,
    ) -> None:
        self._function = function
        self._signature = signature
        self.min_items = min_items
        self._seen = 0

    @cached_property
    def loop(self) -> Callable[..., Any] | None:
        """The compiled function; None if numba is missing or cannot compile it."""
        return compiled_loop(self._function, self._signature)

    @property
    def is_used(self) -> bool:
        """Whether so many items were seen that the loop is used, if there is one."""
        return self._seen > self.min_items

    def after(self, items: int) -> Callable[..., Any] | None:
        """Count items to work on, and return the compiled function if it is worthwhile."""
        self._seen += items
        return self.loop if self.is_used else None


def sums_of(*inputs: tuple[str, int]) -> Callable[[Any], Any]:
    """Return the signature of a loop that reads arrays and writes one of float32.

    - `*inputs` (tuple of (str, int)): Type and number of axes of each array that it reads.
    """

    def signature(types: Any) -> Any:
        read = [
            types.Array(getattr(types, dtype), num_axes, "C", readonly=True)
            for dtype, num_axes in inputs
        ]
        return types.void(*read, types.Array(types.float32, 1, "C"))

    return signature


def compiled_loop(
    function: Callable[..., Any], signature: Callable[[Any], Any]
) -> Callable[..., Any] | None:
    """Compile a function by numba. Return None if numba is missing or cannot compile it.

    - `function`: It runs without the interpreter's lock, and its indices are not checked.
    - `signature`: Returns the types of its arguments, given `numba.types`.
    """
    if sys.byteorder != "little":
        return None
    try:
        return _compiled(function, signature, cache=True)
    except ImportError:
        return None
    except Exception as error:
        # The cache has no folder, is damaged, or does not fit on its disk.
        _LOG.debug("numba cannot use its cache: %s", error)
    try:
        return _compiled(function, signature, cache=False)
    except Exception as error:
        # For example, the memory of the process is limited.
        _LOG.warning("numba cannot compile %s: %s", function.__module__, error)
        return None


def _compiled(
    function: Callable[..., Any], signature: Callable[[Any], Any], *, cache: bool
) -> Callable[..., Any] | None:
    from numba import config, njit, types

    if getattr(config, "DISABLE_JIT", False):
        return None
    compiled: Callable[..., Any] = njit(signature(types), nogil=True, cache=cache)(function)
    return compiled
