"""Renews credentials that expire. A namespace issues credentials, and new credentials before they
expire.

| storage option | meaning |
| --- | --- |
| `expires_at_millis` | when the credentials expire: milliseconds since 1970 |
| `refresh_offset_millis` | how long before that they are renewed; 60,000 by default |
| `credential_source` | a JSON text that names the function for new credentials (`source_text`) |

The first two are names of other Lance clients. All stores of a process that name the same source
share one `Credentials`: the source is asked once, and all use its answer. Clients of S3, Google
Cloud Storage and Azure look for new values before each request, parts of a running upload included.

Times are compared with the clock of this machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from lance_spark._forks import ForkLock, after_fork
from lance_spark.errors import InvalidOptionError, LanceError, StorageError
from lance_spark.last_used import LastUsed
from lance_spark.storage.errors import scrub
from lance_spark.storage.options import (
    CREDENTIAL_SOURCE,
    EXPIRES_AT,
    REFRESH_OFFSET,
    import_object,
    to_fsspec,
)

_DEFAULT_OFFSET = 60_000
#: Milliseconds after a failed renewal in which the source is not asked again.
_PAUSE = 5_000
_MOST_SOURCES = 64
#: Clients of stores with the same credentials.
_MOST_CLIENTS = 64


@dataclass(frozen=True, slots=True)
class _RenewalFunction:
    """The function that returns new credentials.

    - `function`: ``package.module:name`` of a function. It takes `request`, and returns storage
      options.
    - `request`: May hold secrets.
    - `names`: Lower-case names of the storage options that it returns.
    """

    function: str
    request: Mapping[str, Any]
    names: frozenset[str]

    @classmethod
    def parse(cls, text: object) -> _RenewalFunction:
        """Read the text of `source_text`. Raises InvalidOptionError, which shows no part of it."""
        try:
            parts = json.loads(text)  # type: ignore[arg-type]
            return cls(str(parts["function"]), dict(parts["request"]), frozenset(parts["names"]))
        except (ValueError, RecursionError, TypeError, KeyError):
            raise InvalidOptionError(
                f"storage option {CREDENTIAL_SOURCE} is not a source of credentials; leave it out: "
                "the namespace of a table sets it"
            ) from None

    def ask(self) -> dict[str, Any]:
        """Return new storage options. Raises LanceError."""
        ask = import_object(CREDENTIAL_SOURCE, self.function, "read or written")
        return dict(ask(self.request))


def source_text(function: str, request: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return the text of the option `credential_source`; see `_RenewalFunction`."""
    parts = {"function": function, "names": sorted(map(str.lower, names)), "request": request}
    return json.dumps(parts, sort_keys=True)


class Credentials:
    """Storage options that expire.

    - `secrets`: All recent values. Errors must not show them.
    """

    def __init__(self, source: _RenewalFunction | None, values: Mapping[str, Any]) -> None:
        self._source = source
        self._lock = ForkLock()
        self._clients: LastUsed[tuple[Any, ...], Any] = LastUsed(_MOST_CLIENTS)
        self.secrets: dict[str, dict[str, Any]] = {"before": {}, "now": {}}
        self._adopt(values)
        # The time of their issue is unknown, so the whole offset is used.
        self._renew_at = self._expires_at - self._offset if source else self._expires_at

    @property
    def name(self) -> str | None:
        """A text that other credentials do not have, with secrets; None without a source."""
        source = self._source
        if source is None:
            return None
        return json.dumps([source.function, source.request], sort_keys=True, default=str)

    @property
    def is_renewable(self) -> bool:
        """Whether a source gives new values."""
        return self._source is not None

    @property
    def is_due(self) -> bool:
        """Whether `current` asks the source."""
        return _now() >= self._renew_at

    @property
    def values(self) -> Mapping[str, Any]:
        """The newest values, which may have expired."""
        return self._values

    def current(self) -> Mapping[str, Any]:
        """Return the values; ask the source if they expire soon.

        Raises StorageError: the values have expired, and the source gave no new values.
        """
        if self.is_due:
            with self._lock:
                if self.is_due:
                    self._renew()
        return self._values

    def adopt(self, values: Mapping[str, Any]) -> None:
        """Use values that another process has renewed, if they expire later."""
        with self._lock:
            if _expiry(values) > self._expires_at:
                self._adopt(values)
                self._renew_at = self._expires_at - self._offset

    def client(self, key: tuple[Any, ...], connect: Callable[[], Any]) -> Any:
        """Return the client of a store with these credentials: one in a process for each key."""
        return self._clients.made((os.getpid(), *key), connect)

    def _adopt(self, values: Mapping[str, Any]) -> None:
        self._expires_at, self._offset = _expiry(values), _offset(values)
        self._values = dict(values)
        self.secrets["before"] = self.secrets["now"]
        self.secrets["now"] = self._values

    def _renew(self) -> None:
        now = _now()
        expired = now >= self._expires_at
        expiry = datetime.fromtimestamp(min(self._expires_at, 2**45) / 1000, UTC)
        text = f"the credentials of the store expired at {expiry:%Y-%m-%d %H:%M:%S} UTC"
        if self._source is None:
            if expired:
                raise StorageError(
                    f"{text} ({EXPIRES_AT}), and no namespace can renew them; open the table again "
                    "with new ones, or by its name in the namespace"
                )
            return
        try:
            answer = self._source.ask()
            expires_at = _expiry(answer)
        except LanceError as error:
            if not expired:
                self._renew_at = now + min(_PAUSE, (self._expires_at - now) / 2)
                return
            reason = scrub(scrub(str(error), self.secrets), _flat(self._source.request))
            # Without a cause, as the request was not sent to the store.
            raise StorageError(f"{text}, and could not be renewed: {reason}") from None
        now = _now()
        if expires_at <= now:
            raise StorageError(
                f"{text}, and the namespace gave credentials that have expired by the clock of "
                "this machine; check the clocks of both, and the namespace"
            )
        self._adopt({name.lower(): value for name, value in answer.items()})
        # Credentials of a short life are renewed after half of it.
        renew_at = self._expires_at - self._offset
        self._renew_at = renew_at if renew_at > now else now + (self._expires_at - now) / 2


class RenewedArguments:
    """The arguments of a file system, with the newest credentials.

    - `scheme`: Scheme of the URI.
    - `options`: All storage options at first.
    """

    def __init__(self, credentials: Credentials, scheme: str, options: Mapping[str, Any]) -> None:
        self.credentials = credentials
        self.scheme = scheme
        self._options = options
        self._known: tuple[Mapping[str, Any], dict[str, Any]] | None = None

    def __call__(self) -> dict[str, Any]:
        """Return the arguments. Raises as `Credentials.current`."""
        values = self.credentials.current()
        known = self._known
        if known is None or known[0] is not values:
            known = values, to_fsspec(self.scheme, merged(self._options, values))
            self._known = known
        return known[1]

    async def of_loop(self) -> dict[str, Any]:
        """Return them in an event loop, which goes on while the source is asked."""
        if self.credentials.is_due:
            return await asyncio.to_thread(self)
        return self()


def merged(options: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return storage options with new values in place of the old values of the same names."""
    kept = {name: value for name, value in options.items() if name.lower() not in values}
    return {**kept, **values}


class _KnownCredentials:
    """The credentials of a process, by their source."""

    lock = threading.Lock()
    by_source: ClassVar[OrderedDict[str, Credentials]] = OrderedDict()


def credentials_of(options: Mapping[str, Any]) -> Credentials | None:
    """Return the credentials among storage options, if they expire.

    Raises InvalidOptionError: a value is invalid.
    """
    lower = {name.lower(): value for name, value in options.items()}
    if EXPIRES_AT not in lower:
        return None
    text = lower.get(CREDENTIAL_SOURCE)
    source = None if text is None else _RenewalFunction.parse(text)
    names = {EXPIRES_AT, REFRESH_OFFSET} | (source.names if source else set())
    values = {name: lower[name] for name in names if name in lower}
    key = json.dumps(values, sort_keys=True, default=str) if source is None else str(text)
    with _KnownCredentials.lock:
        known = _KnownCredentials.by_source.get(key)
        if known is None:
            known = _KnownCredentials.by_source[key] = Credentials(source, values)
        _KnownCredentials.by_source.move_to_end(key)
        while len(_KnownCredentials.by_source) > _MOST_SOURCES:
            _KnownCredentials.by_source.popitem(last=False)
    known.adopt(values)
    return known


@after_fork
def _renew_locks() -> None:
    # Another thread of the parent may have held a lock.
    _KnownCredentials.lock = threading.Lock()
    _KnownCredentials.by_source.clear()


def _now() -> float:
    return time.time() * 1000


def _expiry(values: Mapping[str, Any]) -> float:
    value = values.get(EXPIRES_AT)
    return float("inf") if value is None else _millis(EXPIRES_AT, value)


def _offset(values: Mapping[str, Any]) -> float:
    return _millis(REFRESH_OFFSET, values.get(REFRESH_OFFSET, _DEFAULT_OFFSET))


def _millis(name: str, value: object) -> float:
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidOptionError(
            f"storage option {name} must be a whole number of milliseconds, not {text[:30]!r}"
        )
    return float(text)


def _flat(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return all texts of a request as secrets but those that errors show anyway."""
    flat: dict[str, Any] = {}
    for value in request.values():
        if isinstance(value, Mapping):
            flat |= {f"secret {inner}": text for inner, text in value.items() if inner != "uri"}
    return flat
