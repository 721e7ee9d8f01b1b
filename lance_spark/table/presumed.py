"""Reads of the newest version that begin before a listing has shown which one it is.

A process that has opened a table knows which version was the newest. Mostly it still is. So a read
can be planned on this version while the listing is under way, and need not wait for it first. The
result counts only if the listing, which is sent when the read begins, shows the same manifest by
its entity tag. Otherwise the read is planned again. So a read returns what it would have returned
after the listing.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from lance_spark.errors import LanceError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.versions import ManifestLocation
from lance_spark.table.open import OpenTable, last_seen, open_newest

_Result = TypeVar("_Result")

#: Listings that `presume_newest` has not used yet, and how many of them are kept.
_expected: OrderedDict[tuple[str, ...], Future[ManifestLocation]] = OrderedDict()
_MOST_EXPECTED = 32


class SupersededError(LanceError):
    """Another version is the newest. The error does not leave this module's callers."""


@dataclass(frozen=True, slots=True)
class PresumedTable:
    """The version that was the newest before, and the listing that shows whether it still is.

    - `table`: That version.
    """

    table: OpenTable
    _location: ManifestLocation
    _listing: Future[ManifestLocation]
    _storage_options: Mapping[str, Any] | None

    def check(self) -> None:
        """Raise SupersededError if the listing has shown another version already."""
        listing = self._listing
        if listing.done() and (listing.exception() is not None or not self._is(listing.result())):
            raise SupersededError(f"{self.table.store.display}: there is a newer version")

    def result_of(self, read: Callable[[OpenTable], _Result]) -> _Result:
        """Return what a function returns for the newest version.

        The function is called with the presumed version first. If that is not the newest, the
        result or error is dropped, and it is called again. Raises TableNotFoundError,
        UnsupportedFeatureError, CorruptTableError, StorageError: as `open_table`.
        """
        error: Exception | None = None
        result: list[_Result] = []
        try:
            result.append(read(self.table))
        except Exception as raised:
            error = raised
        newest = self._listing.result()
        if not self._is(newest):
            return read(open_newest(self.table.store, self._storage_options, newest))
        if error is not None:
            raise error
        return result[0]

    def _is(self, newest: ManifestLocation) -> bool:
        return newest == self._location and newest.tag == self._location.tag


def presume_newest(
    uri: str, storage_options: Mapping[str, Any] | None, query: str | None = None
) -> PresumedTable | None:
    """Return the version that was the newest before; None if the process does not keep it.

    A listing of the versions is sent, unless `expect_newest` has sent it.

    - `uri`: Root of the table, or of one of its branches.
    - `storage_options`: As for `open_table`.
    - `query`: As for `expect_newest`.
    """
    store = ObjectStore.from_uri(uri, storage_options)
    location = last_seen(store)
    if location is None:
        return None
    expected = None
    if query is not None:
        expected = _expected.pop(_key(uri, storage_options, query), None)
    listing = expected or _listed(store)
    try:
        table = open_newest(store, storage_options, location)
    except LanceError:
        # The caller opens the newest version, which may be another one.
        return None
    return PresumedTable(table, location, listing, storage_options)


def expect_newest(uri: str, storage_options: Mapping[str, Any] | None, query: str) -> None:
    """Send the listing of a table that a query reads soon, if its newest version is presumed.

    - `query`: A random text. Only a `presume_newest` with the same text uses the listing.
    """
    store = ObjectStore.from_uri(uri, storage_options)
    if last_seen(store) is None:
        return
    _expected[_key(uri, storage_options, query)] = _listed(store)
    while len(_expected) > _MOST_EXPECTED:
        _expected.popitem(last=False)


def _key(uri: str, storage_options: Mapping[str, Any] | None, query: str) -> tuple[str, ...]:
    options = json.dumps(dict(storage_options or {}), sort_keys=True, default=repr)
    return uri, options, query


def _listed(store: ObjectStore) -> Future[ManifestLocation]:
    pool = ThreadPoolExecutor(1)
    listing = pool.submit(versions.latest, store)
    pool.shutdown(wait=False)
    return listing
