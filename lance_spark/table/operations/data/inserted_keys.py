"""The keys of inserted rows, by which a merge detects that another merge inserted the same key.

| field of `KeyExistenceFilter` | content |
| --- | --- |
| field_ids | the columns of the key |
| exact.key_hashes | a 64-bit hash of each key |
| bloom.bitmap | a split-block Bloom filter: blocks of eight 32-bit words, a bit per word and key |
| bloom.num_bits | the size of the filter |
| bloom.number_of_items, bloom.probability | the item count and error rate that set the size |
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
