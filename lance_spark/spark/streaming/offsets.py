"""How far a stream has read a table, as Spark's checkpoint keeps it.

| key | |
| --- | --- |
| `version` | all that the versions before this one brought has been read |
| `index` | and so many of the fragments that this one brought, or of those that it has |
| `snapshot` | true while all rows of the version are read, at the start of a stream |
| `seen` | time and transaction of the last version that was read of, by which one of the same number is told from it; not there if there is none |

`{"version": 0, "index": 0, "snapshot": false}` is the beginning of a stream that was told no
version to begin with: it starts with a snapshot of the version that is the newest at its first
batch. Which one that was, is said by the end of that batch: version V and a snapshot, or V + 1 if
it has all of V. So a batch is known by its start and its end alone, and a position that has nothing
left of a version is always the next version's: Spark compares positions as texts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lance_spark.errors import InvalidInputError
from lance_spark.table.manifest.manifest import Manifest

_KEYS = frozenset({"version", "index", "snapshot"})


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the history of a table.

    Attributes
    ----------
    version : int
    index : int
        Fragments of the version that have been read.
    snapshot : bool
        Whether they are those that the version has, not only those that it brought.
    seen : str
        What `seen` says of the version `last`; empty if that is not known.
    """

    version: int
    index: int = 0
    snapshot: bool = False
    seen: str = field(default="", compare=False)

    @property
    def is_beginning(self) -> bool:
        """Whether nothing has been read, and no version has been chosen to begin with."""
        return self.version == 0

    @property
    def last(self) -> int:
        """The last version that something has been read of."""
        return self.version if self.index or self.snapshot else self.version - 1

    def to_json(self) -> dict[str, Any]:
        """Return what Spark keeps."""
        told = {"version": self.version, "index": self.index, "snapshot": self.snapshot}
        return {**told, "seen": self.seen} if self.seen else told

    @classmethod
    def parse(cls, value: object) -> Position:
        """Read what Spark has kept.

        Raises
        ------
        InvalidInputError
            It is no position: the checkpoint is that of another source.
        """
        if isinstance(value, dict) and value.keys() - {"seen"} == _KEYS:
            version, index, snapshot = value["version"], value["index"], value["snapshot"]
            seen = value.get("seen", "")
            whole = type(version) is int and type(index) is int and type(snapshot) is bool
            if whole and version >= 0 and index >= 0 and isinstance(seen, str):
                return cls(version, index, snapshot, seen)
        raise InvalidInputError(
            f"{str(value)[:200]} is no position in a Lance table: the checkpoint is of another "
            "source or of a newer release; "
            "start the stream with a new checkpointLocation"
        )


BEGINNING = Position(0)


def seen(manifest: Manifest) -> str:
    """Return what tells a version from others of its number, as positions have it."""
    time, transaction = manifest.identity
    return f"{time} {transaction or ''}"
