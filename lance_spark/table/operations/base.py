"""What every operation of a transaction knows, and what two of them can be to one another.

An operation is one file in this folder. It knows its protobuf message, how the next manifest is
built from the newest one, and against which committed operations it holds. A commit that lost a
race asks the operation about every transaction committed since the version it was planned on:

| answer | what the commit does |
| --- | --- |
| compatible | builds on top of the newer version |
| rebase | lets the operation change itself, so that it holds on top of the newer version, and builds on it |
| retryable | gives up; the same change, planned anew on the newest version, can succeed |
| incompatible | gives up; the two changes contradict one another |

A committed operation that this release does not know is retryable for all: nobody knows what it
changed, and planning anew looks at everything it left behind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.fragments.files import DeletionFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.operations.data.inserted_keys import InsertedKeys
from lance_spark.table.paths import TablePaths, deletion_path
from lance_spark.table.rows.deletion_writer import write_deletions
from lance_spark.table.rows.deletions import Offsets

#: Stands for the schema among the ids of fields whose metadata an operation changes.
SCHEMA_METADATA = -1


class Conflict(Enum):
    """What a committed operation means for one that is yet to be committed."""

    COMPATIBLE = "compatible"
    REBASE = "rebase"
    RETRYABLE = "retryable"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True, slots=True)
class Rebase:
    """What an operation has at hand to change itself for a newer version.

    Attributes
    ----------
    base : Manifest
        The version that the operation was planned on, or last rebased onto.
    newest : Manifest
        The version that it is to hold on top of.
    committed : sequence of Operation
        What was committed after `base`, oldest first.
    paths : TablePaths
        Opens the files of `newest`.
    written : list of str
        Files that rebasing has written, below the table's root. The commit deletes those that come
        to nothing.
    """

    base: Manifest
    newest: Manifest
    committed: Sequence[Operation]
    paths: TablePaths
    written: list[str] = field(default_factory=list)

    def write_deletions(self, fragment_id: int, offsets: Offsets) -> DeletionFile:
        """Write a deletion file for a fragment of the newest version.

        Parameters
        ----------
        fragment_id : int
        offsets : int64 array
            All deleted rows of the fragment, increasing.

        Raises
        ------
        StorageError
        """
        # Merged sets are bitmaps whatever their size, as those of other clients.
        file = write_deletions(
            self.paths.store, fragment_id, self.newest.version, offsets, bitmap=True
        )
        self.written.append(deletion_path(file, fragment_id))
        return file


class Operation(ABC):
    """A change of a table. Immutable."""

    __slots__ = ()

    #: The answer for each kind of committed operation, where nothing but the kind matters.
    conflicts: ClassVar[Mapping[str, Conflict]] = {}

    @property
    @abstractmethod
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`; empty if it is unknown to this release."""

    @property
    def config_keys(self) -> frozenset[str]:
        """Keys of the table's configuration that are set or deleted."""
        return frozenset()

    @property
    def deleted_config_keys(self) -> frozenset[str]:
        """Those of them that are deleted."""
        return frozenset()

    @property
    def table_metadata_keys(self) -> frozenset[str]:
        """Keys of the table's metadata that are set or deleted."""
        return frozenset()

    @property
    def replaces_table_metadata(self) -> bool:
        """Whether all other keys of the table's metadata go."""
        return False

    @property
    def metadata_targets(self) -> frozenset[int]:
        """Ids of the fields whose metadata it changes, and `SCHEMA_METADATA` if it is the
        schema's.
        """
        return frozenset()

    @property
    def kept_fields(self) -> frozenset[int] | None:
        """Ids of the fields that there are afterwards, if it lists them."""
        return None

    @property
    def updated_fragments(self) -> Mapping[int, Fragment]:
        """New states of fragments that stay, by id."""
        return {}

    @property
    def removed_fragments(self) -> frozenset[int]:
        """Ids of fragments that go."""
        return frozenset()

    @property
    def touched_fragments(self) -> frozenset[int]:
        """Ids of the fragments that it changes or removes."""
        return self.removed_fragments | self.updated_fragments.keys()

    @property
    def modified_fields(self) -> frozenset[int]:
        """Ids of fields whose values change in rows that there are."""
        return frozenset()

    @property
    def moves_rows(self) -> bool:
        """Whether rows of the fragments that it touches live on in others."""
        return False

    @property
    def indexed_fields(self) -> frozenset[int]:
        """Ids of the fields that it makes indexes on."""
        return frozenset()

    @property
    def inserted_keys(self) -> InsertedKeys | None:
        """The keys that a merge inserted, if it noted them."""
        return None

    @property
    def new_indexes(self) -> Sequence[table_pb2.IndexMetadata]:
        """The segments of indexes that it brings; nobody changes them any more."""
        return ()

    @property
    def removed_indexes(self) -> Sequence[table_pb2.IndexMetadata]:
        """The segments of indexes that it takes away."""
        return ()

    @property
    def compacted_shards(self) -> frozenset[bytes]:
        """Ids of the shards of the write-ahead log whose state it notes."""
        return frozenset()

    @property
    def can_add_required_columns(self) -> bool:
        """Whether columns could come in, or become such, that rows written without them break."""
        return False

    @classmethod
    def from_proto(cls, message: Any, source: str) -> Operation:
        """Parse the message of the operation; `source` is what errors call its file.

        Raises
        ------
        CorruptTableError
        """
        raise NotImplementedError(cls.__name__)

    @abstractmethod
    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""

    @property
    def deletion_files(self) -> Iterable[str]:
        """Paths below the table's root of the deletion files that it brings along."""
        return ()

    def rebase(self, rebase: Rebase) -> Operation:
        """Return the operation as it holds on top of a newer version; itself, if it does as it is.

        Called if `conflict` answered so for one of the operations committed in between.

        Raises
        ------
        CommitConflictError
            It does not.
        StorageError
        """
        return self

    @abstractmethod
    def apply(self, draft: ManifestBuilder) -> None:
        """Make the change.

        Raises
        ------
        InvalidInputError
            It does not fit the table.
        CommitConflictError
            It was planned on a table that looked otherwise.
        """

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what an operation means that was committed after the version this one was planned
        on.
        """
        return self.conflicts.get(committed.kind, Conflict.RETRYABLE)
