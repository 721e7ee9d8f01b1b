"""The keys that a merge inserted, so that two merges that insert one key at the same time are
noticed.

| field of `KeyExistenceFilter` | content |
| --- | --- |
| field_ids | the columns of the key |
| exact.key_hashes | a 64-bit hash for each key |
| bloom.bitmap | a split-block Bloom filter: blocks of eight 32-bit words, in each of which a key sets one bit |
| bloom.num_bits | its size |
| bloom.number_of_items, bloom.probability | what it was sized for |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lance_spark.errors import CorruptTableError
from lance_spark.proto import transaction_pb2

_WORDS = 8
_BLOCK_BYTES = 4 * _WORDS


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A split-block Bloom filter.

    Attributes
    ----------
    bitmap : bytes
        Blocks of 32 bytes.
    num_bits : int
    number_of_items : int
    probability : float
    """

    bitmap: bytes
    num_bits: int
    number_of_items: int
    probability: float

    def is_like(self, other: BloomFilter) -> bool:
        """Whether both put a key at the same place."""
        return len(self.bitmap) == len(other.bitmap) and self.num_bits == other.num_bits

    def may_meet(self, other: BloomFilter) -> bool:
        """Whether there can be a key that is in both: one that is has a bit in every word of a
        block.
        """
        mine, theirs = (np.frombuffer(item.bitmap, "<u4") for item in (self, other))
        return bool((mine & theirs).reshape(-1, _WORDS).all(axis=1).any())


@dataclass(frozen=True, slots=True)
class InsertedKeys:
    """The keys that a merge inserted.

    Attributes
    ----------
    field_ids : tuple of int
        The columns of the key.
    keys : frozenset of int, or BloomFilter, or None
        Their hashes, or a filter that contains them.
    """

    field_ids: tuple[int, ...]
    keys: frozenset[int] | BloomFilter | None

    def may_meet(self, other: InsertedKeys) -> bool:
        """Whether both can have inserted a key; true where they cannot be compared."""
        if self.field_ids != other.field_ids:
            return True
        mine, theirs = self.keys, other.keys
        if isinstance(mine, frozenset) and isinstance(theirs, frozenset):
            return not mine.isdisjoint(theirs)
        if isinstance(mine, BloomFilter) and isinstance(theirs, BloomFilter):
            return not mine.is_like(theirs) or mine.may_meet(theirs)
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
        """Parse the message; `source` is what errors call its file.

        Raises
        ------
        CorruptTableError
            A filter that has no whole number of blocks.
        """
        kind = message.WhichOneof("data")
        if kind == "exact":
            return cls(tuple(message.field_ids), frozenset(message.exact.key_hashes))
        if kind is None:
            return cls(tuple(message.field_ids), None)
        bloom = message.bloom
        if len(bloom.bitmap) % _BLOCK_BYTES:
            raise CorruptTableError(
                f"{source}: a filter of inserted keys has {len(bloom.bitmap)} bytes, which are no "
                f"blocks of {_BLOCK_BYTES}"
            )
        return cls(
            tuple(message.field_ids),
            BloomFilter(bloom.bitmap, bloom.num_bits, bloom.number_of_items, bloom.probability),
        )
