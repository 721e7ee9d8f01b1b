"""Commits a change only once, also if it is attempted repeatedly: a batch of a stream, a job.

A writer has an id, and numbers its changes in increasing order. Both are properties of the
transaction, so they are committed together with the change.

| property | value |
| --- | --- |
| `id_key` | the writer: a query of a stream, an application |
| `number_key` | the change, as a decimal number |

A change was committed before if the history has a change of the same id with the same or a higher
number. The search goes back from the version that the change is planned on to the newest
transaction of that id. That is one manifest if no other client writes; for the first change of an
id it is the whole lookback, on remote stores sixteen versions in parallel. `commit` itself checks
the versions committed meanwhile: if two writers attempt the same change at once, the later one sees
the earlier one's commit.

Removed versions, and the history before a branch was created, are not searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from lance_spark.errors import AlreadyCommittedError, InvalidInputError, MissingFileError
from lance_spark.storage.read.parallel_reads import read_each
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import Transaction, read_transaction
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import read_manifest
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import ManifestLocation

#: The properties of writes that an application numbers itself.
APP_ID, APP_VERSION = "lance.txn.appId", "lance.txn.version"
#: Most versions that are searched for the newest transaction of an id.
DEFAULT_LOOKBACK = 1_000
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class WriteToken:
    """Identifies one change of one writer.

    Attributes
    ----------
    id_key : str
        The transaction property with the id.
    id : str
    number_key : str
        The transaction property with the number.
    number : int
        At least 0; later changes of the same id have higher numbers.
    lookback : int
        Most versions that are searched for a transaction of the id.

    Raises
    ------
    InvalidInputError
        The id is empty, or a number is out of range.
    """

    id_key: str
    id: str
    number_key: str
    number: int
    lookback: int = DEFAULT_LOOKBACK

    def __post_init__(self) -> None:
        if not self.id:
            raise InvalidInputError(
                f"{self.id_key} is empty: a change that is made once needs an id"
            )
        if not 0 <= self.number <= _INT64_MAX:
            raise InvalidInputError(
                f"{self.number_key} must be a whole number from 0 to {_INT64_MAX}, not "
                f"{self.number}"
            )
        if self.lookback < 1:
            raise InvalidInputError(f"lookback must be 1 version or more, not {self.lookback}")

    def properties(self) -> dict[str, str]:
        """Return the transaction properties of the change."""
        return {self.id_key: self.id, self.number_key: str(self.number)}

    def number_in(self, transaction: Transaction | None) -> int | None:
        """Return the number of a transaction of the same id; None for other ids."""
        if transaction is None or transaction.properties.get(self.id_key) != self.id:
            return None
        text = transaction.properties.get(self.number_key, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 else None

    def is_met_by(self, transaction: Transaction | None) -> bool:
        """Tell whether a transaction is this change, or a later one of the same writer."""
        number = self.number_in(transaction)
        return number is not None and number >= self.number

    def error(self, store: ObjectStore, version: int) -> AlreadyCommittedError:
        """Return the error for a change that was committed before."""
        return AlreadyCommittedError(
            f"{store.display}: version {version} has change {self.number} of {self.id!r} "
            f"({self.id_key}) or a later one "
            "already: nothing was committed",
            version=version,
        )


def write_of(app_id: str | None, version: int | None) -> WriteToken | None:
    """Return the token of a write of an application; None if none is given.

    Raises
    ------
    InvalidInputError
        Only one of both is given, or a value is not valid.
    """
    if (app_id is None) != (version is None):
        raise InvalidInputError(
            "txnAppId and txnVersion go together (txn_app_id and txn_version): who writes, and "
            "which of "
            "its writes this is"
        )
    if app_id is None or version is None:
        return None
    return WriteToken(APP_ID, app_id, APP_VERSION, version)


def committed_before(store: ObjectStore, manifest: Manifest, once: WriteToken) -> int | None:
    """Return the version that has a change; None if no searched version has it.

    Parameters
    ----------
    store : ObjectStore
        The table's root.
    manifest : Manifest
        The newest version to search.
    once : Once

    Raises
    ------
    CorruptTableError, StorageError
    """
    transaction = read_transaction(store, manifest)
    if once.number_in(transaction) is not None:
        return manifest.version if once.is_met_by(transaction) else None
    older = [item for item in versions.list_manifests(store) if item.version < manifest.version]
    searched = older[: -once.lookback : -1] if once.lookback > 1 else []
    for version, transaction in _transactions(store, searched):
        if once.number_in(transaction) is not None:
            return version if once.is_met_by(transaction) else None
    return None


def _transactions(
    store: ObjectStore, located: Sequence[ManifestLocation]
) -> Iterator[tuple[int, Transaction | None]]:
    """Yield versions and their transactions in the given order, up to the first removed one."""

    def read(location: ManifestLocation) -> Transaction | None:
        return read_transaction(store, read_manifest(store, location))

    with suppress(MissingFileError):
        made = read_each(read, located, local=store.is_local)
        for location, result in zip(located, made, strict=True):
            yield location.version, result
