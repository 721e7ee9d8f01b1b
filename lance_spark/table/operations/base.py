"""The base class of transaction operations, and the conflict matrix.

Each operation has one module below this folder. The module converts the operation from and to its
protobuf message, applies it to the newest manifest, and decides whether it still holds after
another operation. If another client commits first, the commit asks the operation about each
transaction committed since the version that it was planned on:

| answer | what the commit does |
| --- | --- |
| compatible | builds on the newer version |
| rebase | lets the operation adapt itself to the newer version, and builds on that version |
| retryable | fails; the same change, planned again on the newest version, can succeed |
| incompatible | fails; the two changes contradict each other |

The conflict matrix depends on the names of the two operations alone. Some operations also compare
fragments, fields or keys in their `conflict`, and use the matrix for the remaining cases.
docs/reference/conflicts.md shows the matrix, and the outcome of each pair of changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from pyroaring import BitMap

from lance_spark.errors import CorruptTableError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.fragments.files import DeletionFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes.sections import MEM_WAL
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.paths import TablePaths, deletion_path
from lance_spark.table.rows.deletions import Offsets, write_deletions

# --------------------------------------------------------------------------------------------------
# The keys of inserted rows, by which a merge detects that another merge inserted the same key.
#
# | field of `KeyExistenceFilter` | content |
# | --- | --- |
# | field_ids | the columns of the key |
# | exact.key_hashes | a 64-bit hash of each key |
# | bloom.bitmap | a split-block Bloom filter: blocks of eight 32-bit words, a bit per word and key
#     |
# | bloom.num_bits | the size of the filter |
# | bloom.number_of_items, bloom.probability | the item count and error rate that set the size |

_WORDS = 8
_BLOCK_BYTES = 4 * _WORDS


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A split-block Bloom filter.

    - `bitmap`: Blocks of 32 bytes.
    """

    bitmap: bytes
    num_bits: int
    number_of_items: int
    probability: float

    def has_same_size(self, other: BloomFilter) -> bool:
        """Return whether both filters set the same bits for a key."""
        return len(self.bitmap) == len(other.bitmap) and self.num_bits == other.num_bits

    def may_share_key(self, other: BloomFilter) -> bool:
        """Return whether a key may be in both filters, which have the same size."""
        # A key sets one bit in each word of a block.
        mine, theirs = (np.frombuffer(bloom.bitmap, "<u4") for bloom in (self, other))
        return bool((mine & theirs).reshape(-1, _WORDS).all(axis=1).any())


@dataclass(frozen=True, slots=True)
class InsertedKeys:
    """The keys of the rows that a merge inserted.

    - `field_ids`: The columns of the key.
    - `keys`: Hashes of the keys, or a filter of them.
    """

    field_ids: tuple[int, ...]
    keys: frozenset[int] | BloomFilter | None

    def may_share_key(self, other: InsertedKeys) -> bool:
        """Return whether both merges may have inserted one key; True if that is not known."""
        if self.field_ids != other.field_ids:
            return True
        mine, theirs = self.keys, other.keys
        if isinstance(mine, frozenset) and isinstance(theirs, frozenset):
            return not mine.isdisjoint(theirs)
        if isinstance(mine, BloomFilter) and isinstance(theirs, BloomFilter):
            return not mine.has_same_size(theirs) or mine.may_share_key(theirs)
        return True

    def to_proto(self) -> transaction_pb2.Transaction.KeyExistenceFilter:
        """Return the message."""
        message = transaction_pb2.Transaction.KeyExistenceFilter(field_ids=self.field_ids)
        if isinstance(self.keys, BloomFilter):
            message.bloom.SetInParent()
            message.bloom.bitmap = self.keys.bitmap
            message.bloom.num_bits = self.keys.num_bits
            message.bloom.number_of_items = self.keys.number_of_items
            message.bloom.probability = self.keys.probability
        elif self.keys is not None:
            message.exact.SetInParent()
            message.exact.key_hashes.extend(sorted(self.keys))
        return message

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.KeyExistenceFilter, source: str
    ) -> InsertedKeys:
        """Parse the message; errors call its file `source`.

        Raises CorruptTableError: the size of a filter is not a multiple of the block size.
        """
        form = message.WhichOneof("data")
        if form == "exact":
            return cls(tuple(message.field_ids), frozenset(message.exact.key_hashes))
        if form is None:
            return cls(tuple(message.field_ids), None)
        bloom = message.bloom
        if len(bloom.bitmap) % _BLOCK_BYTES:
            raise CorruptTableError(
                f"{source}: a filter of inserted keys has {len(bloom.bitmap)} bytes, which is not "
                f"a multiple of {_BLOCK_BYTES}"
            )
        return cls(
            tuple(message.field_ids),
            BloomFilter(bloom.bitmap, bloom.num_bits, bloom.number_of_items, bloom.probability),
        )


# --------------------------------------------------------------------------------------------------
# The base class of transaction operations, and the conflict matrix.

#: In `Operation.metadata_targets`: the metadata of the schema itself.
SCHEMA_METADATA = -1


class Conflict(Enum):
    """The outcome for an operation, if another operation was committed first."""

    COMPATIBLE = "compatible"
    REBASE = "rebase"
    RETRYABLE = "retryable"
    INCOMPATIBLE = "incompatible"


_OUTCOMES = {
    "ok": Conflict.COMPATIBLE,
    "rb": Conflict.REBASE,
    "rp": Conflict.RETRYABLE,
    "no": Conflict.INCOMPATIBLE,
}
# A row is the operation to commit; a column is the operation committed before it, in the same
# order. ok: compatible, rb: rebase, rp: replan (retryable), no: incompatible.
_MATRIX = """
                      1  2  3  4  5  6  7  8  9  10 11 12 13 14 15 16
append                ok ok no ok ok ok no ok ok ok ok ok no ok ok ok
delete                ok rb no ok rp rp no ok rb ok ok rp no ok ok ok
overwrite             ok ok rp ok ok ok ok ok ok ok ok ok no ok ok ok
create_index          ok ok no rp rp rb no ok rb ok ok rp no ok ok ok
rewrite               ok rp no rp rp rp no ok rp ok ok rp ok ok ok rp
merge                 rp rp no ok rp rp no ok rp no ok rp no ok ok rp
restore               ok ok ok ok ok ok ok ok ok ok ok ok no ok ok ok
reserve_fragments     ok ok no ok ok ok no ok ok ok ok ok ok ok ok ok
update                ok rb no ok rp rp no ok rb ok ok rp ok ok ok rp
project               ok ok no ok ok rp no ok ok rp ok ok no ok ok ok
update_config         ok ok ok ok ok ok ok ok ok ok ok ok ok ok ok ok
data_replacement      ok ok no ok ok rp no ok ok ok ok ok no ok ok ok
update_mem_wal_state  no no no ok ok no no ok no no ok no ok no ok no
clone                 ok ok ok ok ok ok ok ok ok ok ok ok ok ok ok ok
update_bases          ok ok ok ok ok ok ok ok ok ok ok ok ok ok ok ok
data_overlay          ok ok no ok ok rp no ok ok ok ok ok no ok ok ok
"""
_ROWS = [line.split() for line in _MATRIX.strip().splitlines()[1:]]
#: Names of operations, as in `Transaction.operation`.
OPERATION_NAMES = tuple(row[0] for row in _ROWS)
#: By name of the operation to be committed, and name of the operation committed before it.
MATRIX: Mapping[str, Mapping[str, Conflict]] = {
    name: dict(zip(OPERATION_NAMES, (_OUTCOMES[cell] for cell in cells), strict=True))
    for name, *cells in _ROWS
}


def conflict_of_names(name: str, committed: str) -> Conflict:
    """Return the outcome by the names of an operation and of one committed before it.

    An unknown operation is retryable. This release does not know what it changed, but a change
    that is planned again reads the version that the unknown operation made.
    """
    return MATRIX.get(name, {}).get(committed, Conflict.RETRYABLE)


@dataclass(frozen=True, slots=True)
class Rebase:
    """The input of `Operation.rebase`.

    - `base`: The version that the operation was planned on, or last rebased onto.
    - `newest`: The version that the operation is rebased onto.
    - `committed`: The operations committed after `base`, oldest first.
    - `paths`: Opens the files of `newest`.
    - `written`: Files that the rebase has written, below the table's root. The commit deletes the
      files that no version refers to.
    """

    base: Manifest
    newest: Manifest
    committed: Sequence[Operation]
    paths: TablePaths
    written: list[str] = field(default_factory=list)

    def write_deletions(self, fragment_id: int, offsets: Offsets) -> DeletionFile:
        """Write a deletion file for a fragment of the newest version.

        - `offsets`: All deleted rows of the fragment, increasing.

        Raises StorageError.
        """
        # Other clients store merged deletions as bitmaps of any size, too.
        file = write_deletions(
            self.paths.store, fragment_id, self.newest.version, offsets, bitmap=True
        )
        self.written.append(deletion_path(file, fragment_id))
        return file


class Operation(ABC):
    """A change of a table. Immutable."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """The field name in `Transaction.operation`; empty if this release does not know it."""

    @property
    def config_keys(self) -> frozenset[str]:
        """Keys of the table's configuration that are set or deleted."""
        return frozenset()

    @property
    def deleted_config_keys(self) -> frozenset[str]:
        """The keys among `config_keys` that are deleted."""
        return frozenset()

    @property
    def table_metadata_keys(self) -> frozenset[str]:
        """Keys of the table's metadata that are set or deleted."""
        return frozenset()

    @property
    def replaces_table_metadata(self) -> bool:
        """Whether the operation removes all keys of the table's metadata that it does not set."""
        return False

    @property
    def metadata_targets(self) -> frozenset[int]:
        """Ids of the fields whose metadata changes; `SCHEMA_METADATA` for the schema itself."""
        return frozenset()

    @property
    def remaining_fields(self) -> frozenset[int] | None:
        """Ids of all fields of the new schema; None if the operation does not list them."""
        return None

    @property
    def updated_fragments(self) -> Mapping[int, Fragment]:
        """New states of changed fragments that stay in the table, by id."""
        return {}

    @property
    def removed_fragments(self) -> frozenset[int]:
        """Ids of removed fragments."""
        return frozenset()

    @property
    def touched_fragments(self) -> frozenset[int]:
        """Ids of changed and removed fragments."""
        return self.removed_fragments | self.updated_fragments.keys()

    @property
    def modified_fields(self) -> frozenset[int]:
        """Ids of fields whose values change in existing rows."""
        return frozenset()

    def written_fields(self, base: table_pb2.Manifest) -> frozenset[int] | None:
        """Return the ids of the fields that get new values in existing rows; None for new rows.

        - `base`: The version before this operation; without fragments for a new table.
        """
        return self.modified_fields

    @property
    def moves_rows(self) -> bool:
        """Whether rows of `touched_fragments` move to other fragments."""
        return False

    def changed_rows(self, fragment_id: int) -> BitMap | None:
        """Return the rows of a fragment that get new values in place; None if it is not known."""
        return None

    @property
    def indexed_fields(self) -> frozenset[int]:
        """Ids of the fields of new indexes."""
        return frozenset()

    @property
    def inserted_keys(self) -> InsertedKeys | None:
        """The keys of the rows that a merge inserted; None if they are not recorded."""
        return None

    @property
    def new_indexes(self) -> Sequence[table_pb2.IndexMetadata]:
        """The index segments that the operation adds; they must not be modified."""
        return ()

    @property
    def removed_indexes(self) -> Sequence[table_pb2.IndexMetadata]:
        """The index segments that the operation removes."""
        return ()

    @property
    def changes_mem_wal(self) -> bool:
        """Whether the table gets a MemWAL, or loses it."""
        return any(index.name == MEM_WAL for index in (*self.new_indexes, *self.removed_indexes))

    @property
    def compacted_generations(self) -> Mapping[bytes, int]:
        """The newest generation of each MemWAL shard that the operation brings into the table."""
        return {}

    def is_stale_after(self, committed: Operation) -> bool:
        """Return whether a committed operation has rows of the MemWAL that this one has, too."""
        theirs = committed.compacted_generations
        return any(
            generation <= theirs.get(shard, 0)
            for shard, generation in self.compacted_generations.items()
        )

    @property
    def can_add_required_columns(self) -> bool:
        """Whether a column may become required that rows written before may lack."""
        return False

    @classmethod
    def from_proto(cls, message: Any, source: str) -> Operation:
        """Parse the message of the operation; errors call its file `source`.

        Raises CorruptTableError.
        """
        raise NotImplementedError(cls.__name__)

    @abstractmethod
    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""

    @property
    def deletion_files(self) -> Iterable[str]:
        """Paths below the table's root of the operation's new deletion files."""
        return ()

    def rebase(self, rebase: Rebase) -> Operation:
        """Return the operation adapted to a newer version; itself if nothing changes.

        Called if `conflict` returned `Conflict.REBASE` for one of the operations committed since.
        Raises StorageError. Raises CommitConflictError: the operation does not hold on the newer
        version.
        """
        return self

    @abstractmethod
    def apply(self, builder: ManifestBuilder) -> None:
        """Apply the operation to the next manifest.

        Raises InvalidInputError: the operation does not fit the table. Raises CommitConflictError:
        the table has changed since the operation was planned.
        """

    def conflict(self, committed: Operation) -> Conflict:
        """Return the outcome for this operation if another client committed an operation first."""
        return self.conflict_by_matrix(committed)

    def conflict_by_matrix(self, committed: Operation) -> Conflict:
        """Return the outcome that the conflict matrix has for the two operations."""
        return conflict_of_names(self.name, committed.name)
