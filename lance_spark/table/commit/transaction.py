"""Transactions: records of committed operations, which other writers check for conflicts.

A transaction is written twice, as the same bytes: to `_transactions/{read_version}-{uuid}.txn`, and
to the manifest of its version. Tables with writer flag 32 do not have the file. Early writers did
not write the copy in the manifest.
"""

from __future__ import annotations

import uuid as uuid_module
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from lance_spark.arguments import pylance_keywords
from lance_spark.errors import CorruptTableError, InvalidInputError, MissingFileError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest.manifest import Manifest

if TYPE_CHECKING:
    # Not imported at run time: a reader does not need the operations.
    from lance_spark.table.operations.base import Operation

FOLDER = "_transactions"

#: The transaction property with the message of a commit.
MESSAGE = "__lance_commit_message"


def with_message(properties: Mapping[str, str] | None, message: str | None) -> dict[str, str]:
    """Return transaction properties, with the commit message added if it is given.

    Raises InvalidInputError: a key or a value is not a string.
    """
    merged = {**(properties or {}), **({} if message is None else {MESSAGE: message})}
    for key, value in merged.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise InvalidInputError(f"transaction property {key!r}: {value!r} is not a string")
    return merged


@pylance_keywords(renamed={"transaction_properties": "properties"})
@dataclass(frozen=True, slots=True)
class Transaction:
    """An operation, with the version that it was planned on.

    Attributes
    ----------
    read_version : int
        The version that the operation was planned on; 0 for the creation of a table.
    operation : Operation
    uuid : str
        A unique id; a new one by default.
    properties : mapping of str to str
        Chosen by the writer, for example ``__lance_commit_message``.
    tag : str
    """

    read_version: int
    operation: Operation
    uuid: str = field(default_factory=lambda: str(uuid_module.uuid4()))
    properties: Mapping[str, str] = field(default_factory=dict)
    tag: str = ""

    @classmethod
    def new(
        cls, read_version: int, operation: Operation, properties: Mapping[str, str] | None = None
    ) -> Transaction:
        """Return a transaction with a new id."""
        return cls(read_version, operation, properties=dict(properties or {}))

    @property
    def transaction_properties(self) -> Mapping[str, str]:
        """The `properties`, by pylance's name."""
        return self.properties

    @property
    def file_name(self) -> str:
        """The name of the transaction's file below _transactions/."""
        return f"{self.read_version}-{self.uuid}.txn"

    def encode(self) -> bytes:
        """Return the serialised message."""
        from lance_spark.proto import transaction_pb2

        message = transaction_pb2.Transaction(
            read_version=self.read_version,
            uuid=self.uuid,
            tag=self.tag,
            transaction_properties=dict(self.properties),
        )
        self.operation.write_to(message)
        data: bytes = message.SerializeToString()
        return data


def decode(data: bytes, name: str) -> Transaction:
    """Parse a serialised transaction.

    - `name`: The name of the file in errors.

    Raises CorruptTableError.
    """
    from lance_spark.proto import transaction_pb2
    from lance_spark.table.operations.registry import operation_of

    message = transaction_pb2.Transaction()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise CorruptTableError(f"{name}: unreadable transaction: {error}") from None
    return Transaction(
        read_version=message.read_version,
        uuid=message.uuid,
        operation=operation_of(message, name),
        properties=dict(message.transaction_properties),
        tag=message.tag,
    )


def read_transaction(store: ObjectStore, manifest: Manifest) -> Transaction | None:
    """Return the transaction that created a version; None if it is not recorded.

    Raises CorruptTableError, StorageError.
    """
    if manifest.transaction_section is not None:
        return decode(manifest.transaction_section, manifest.name)
    if manifest.transaction_file is None:
        return None
    path = f"{FOLDER}/{manifest.transaction_file}"
    try:
        data = store.read_bytes(path)
    except InvalidInputError as error:
        raise CorruptTableError(f"{manifest.name}: its transaction file: {error}") from None
    except MissingFileError:
        return None
    return decode(data, store.name(path))


def read_operation(store: ObjectStore, manifest: Manifest) -> Operation | None:
    """Return the operation that created a version; None if it is not recorded.

    Raises CorruptTableError, StorageError.
    """
    transaction = read_transaction(store, manifest)
    return transaction.operation if transaction is not None else None
