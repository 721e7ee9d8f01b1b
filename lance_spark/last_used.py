"""A mapping of limited size, which forgets what was used longest ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from lance_spark._forks import ForkLock

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class LastUsed(Generic[_Key, _Value]):
    """The values that were used last, by their keys. Threads share it.

    - `most`: Most values.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = ForkLock()
        self._values: OrderedDict[_Key, _Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: _Key) -> _Value | None:
        """Return a value; None if it is not there."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: _Key, value: _Value) -> _Value:
        """Add a value, and return it. If another thread was faster, return its value."""
        with self._lock:
            value = self._values.setdefault(key, value)
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
            return value

    def made(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        """Return a value, which is made first if it is not there. Threads may make it twice."""
        value = self.get(key)
        return self.put(key, make()) if value is None else value

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()
