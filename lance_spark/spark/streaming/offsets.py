"""Positions of a stream in a table, as checkpoints store them.

| key | meaning |
| --- | --- |
| `version` | all versions before this one have been read |
| `index` | number of fragments of this version that have been read |
| `snapshot` | true while all rows of the version are read, at the start of a stream |
| `seen` | optional: time and transaction of the last read version, to detect a recreated table |

`{"version": 0, "index": 0, "snapshot": false}` is the start of a stream without a starting version:
it begins with a snapshot of the newest version at its first batch. The end of that batch records
the version: V with a snapshot, or V + 1 if the batch has all of V. So start and end define a batch.
A position after the last fragment of a version is always stored as the start of the next version,
because Spark compares positions as texts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lance_spark.errors import InvalidInputError
from lance_spark.table.manifest.manifest import Manifest

_KEYS = frozenset({"version", "index", "snapshot"})


@dataclass(frozen=True, slots=True, order=True)
class StreamPosition:
    """A position in the history of a table.

    - `index`: Number of fragments of the version that have been read.
    - `snapshot`: Whether `index` counts all fragments of the version, not only new fragments.
    - `seen`: Identity of the version `last`; empty if unknown.
    """

    version: int
    index: int = 0
    snapshot: bool = False
    seen: str = field(default="", compare=False)

    @property
    def is_beginning(self) -> bool:
        """Whether nothing has been read and no starting version is chosen."""
        return self.version == 0

    @property
    def last(self) -> int:
        """The last version of which rows have been read."""
        return self.version if self.index or self.snapshot else self.version - 1

    def to_json(self) -> dict[str, Any]:
        """Return the JSON value for the checkpoint."""
        value = {"version": self.version, "index": self.index, "snapshot": self.snapshot}
        return {**value, "seen": self.seen} if self.seen else value

    @classmethod
    def parse(cls, value: object) -> StreamPosition:
        """Parse the JSON value of a checkpoint.

        Raises InvalidInputError: the value is not a position: the checkpoint belongs to another
        source.
        """
        if isinstance(value, dict) and value.keys() - {"seen"} == _KEYS:
            version, index, snapshot = value["version"], value["index"], value["snapshot"]
            transaction = value.get("seen", "")
            is_typed = type(version) is int and type(index) is int and type(snapshot) is bool
            if is_typed and version >= 0 and index >= 0 and isinstance(transaction, str):
                return cls(version, index, snapshot, transaction)
        raise InvalidInputError(
            f"{str(value)[:200]} is not a position in a Lance table: the checkpoint belongs to "
            "another source or to a newer release; start the stream with a new checkpointLocation"
        )


BEGINNING = StreamPosition(0)


def seen(manifest: Manifest) -> str:
    """Return the identity of a version for positions."""
    time, transaction = manifest.identity
    return f"{time} {transaction or ''}"
