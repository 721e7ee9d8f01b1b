"""Fragments of manifests and transactions; `files` has their parts.

A `Fragment` wraps its protobuf message and parses parts on first use: a manifest of 100,000
fragments opens without touching them, and unknown fields of a fragment survive every commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lance_spark.errors import CorruptTableError
from lance_spark.proto import table_pb2
from lance_spark.table.fragments.files import (
    DataFile,
    DeletionFile,
    ExternalRange,
    Lineage,
    Overlay,
)

#: Row offsets are 32-bit.
MAX_PHYSICAL_ROWS = 2**32
#: Row addresses have 32 bits for the fragment.
MAX_ID = 2**32 - 1
#: Bytes of sequences that are cheaper to keep than to remove.
_SMALL_LINEAGE = 1024


class Fragment:
    """A horizontal part of a table: data files with the same rows, and deleted rows. Immutable.

    Parameters
    ----------
    id : int
        0 for a new fragment; the commit assigns an id.
    files : iterable of DataFile
    physical_rows : int
        Rows of the files, including deleted rows.
    deletion_file : DeletionFile, optional
    """

    __slots__ = ("_files", "_proto", "_source")

    _files: tuple[DataFile, ...] | None

    def __init__(
        self,
        id: int,  # noqa: A002 - the format's name
        files: Iterable[DataFile],
        physical_rows: int,
        deletion_file: DeletionFile | None = None,
    ) -> None:
        self._files = tuple(files)
        self._source = "new fragment"
        self._proto = table_pb2.DataFragment(
            id=id,
            files=[file.to_proto() for file in self._files],
            physical_rows=physical_rows,
            deletion_file=None if deletion_file is None else deletion_file.to_proto(),
        )

    @classmethod
    def from_proto(cls, proto: table_pb2.DataFragment, source: str) -> Fragment:
        """Wrap a message, which must not be changed any more.

        Parameters
        ----------
        proto : table_pb2.DataFragment
        source : str
            Name in errors of the file with the message.

        Raises
        ------
        CorruptTableError
            The id has more than 32 bits.
        """
        return cls.from_protos((proto,), source)[0]

    @classmethod
    def from_protos(cls, protos: Iterable[table_pb2.DataFragment], source: str) -> list[Fragment]:
        """Wrap messages, which must not be changed any more; see `from_proto`.

        Raises
        ------
        CorruptTableError
            An id has more than 32 bits.
        """
        new = cls.__new__
        fragments = []
        for proto in protos:
            if proto.id > MAX_ID:
                raise CorruptTableError(f"{source}: {proto.id} is not a valid fragment id")
            one = new(cls)
            one._files = None
            one._proto = proto
            one._source = source
            fragments.append(one)
        return fragments

    @property
    def id(self) -> int:
        """Fragment id; unique within the table, never reused."""
        return self._proto.id

    @property
    def physical_rows(self) -> int:
        """Rows of the files, including deleted rows; 0 if not recorded (see `row_counts`).

        Raises
        ------
        CorruptTableError
            The number exceeds the limit of a fragment.
        """
        rows = self._proto.physical_rows
        if rows > MAX_PHYSICAL_ROWS:
            raise self._corrupt(f"it cannot have {rows} rows, {MAX_PHYSICAL_ROWS} are the limit")
        return rows

    @property
    def num_deleted_rows(self) -> int:
        """Number of deleted rows.

        Raises
        ------
        CorruptTableError
            The number exceeds the rows of the files.
        """
        deleted = self._proto.deletion_file.num_deleted_rows
        if deleted > self.physical_rows:
            raise self._corrupt(f"{deleted} of its {self.physical_rows} rows are deleted")
        return deleted

    @property
    def num_rows(self) -> int:
        """Rows that are not deleted."""
        return self.physical_rows - self.num_deleted_rows

    def with_counts(self, physical_rows: int, num_deleted_rows: int) -> Fragment:
        """Return the fragment with other counts of rows and of deleted rows."""
        proto = self.to_proto()
        proto.physical_rows = physical_rows
        if proto.HasField("deletion_file"):
            proto.deletion_file.num_deleted_rows = num_deleted_rows
        return Fragment.from_proto(proto, self._source)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files.

        Raises
        ------
        CorruptTableError
            A path leads outside of the table, or columns do not match fields.
        """
        if self._files is None:
            try:
                self._files = tuple(DataFile.from_proto(file) for file in self._proto.files)
            except CorruptTableError as error:
                raise self._corrupt(str(error)) from None
        return self._files

    @property
    def deletion_file(self) -> DeletionFile | None:
        """The deletion file; None without deleted rows."""
        if not self._proto.HasField("deletion_file"):
            return None
        try:
            return DeletionFile.from_proto(self._proto.deletion_file)
        except CorruptTableError as error:
            raise self._corrupt(str(error)) from None

    def has_lineage(self, kind: Lineage) -> bool:
        """Whether row ids or row versions are stored, in any form."""
        return self._proto.WhichOneof(kind.value[0]) is not None

    def has_lineage_column(self, kind: Lineage) -> bool:
        """Whether row ids or row versions are a column of a data file."""
        group, inline, _ = kind.value
        return self._proto.WhichOneof(group) not in (None, inline, kind.external)

    def inline_lineage(self, kind: Lineage) -> bytes | None:
        """Return a serialised sequence; None if absent or in a file."""
        group, inline, _ = kind.value
        return getattr(self._proto, inline) if self._proto.WhichOneof(group) == inline else None

    def external_lineage(self, kind: Lineage) -> ExternalRange | None:
        """Return the range of a file with the serialised sequence; None if it is not in a file.

        Raises
        ------
        CorruptTableError
            The path of the file leads outside of the table.
        """
        if self._proto.WhichOneof(kind.value[0]) != kind.external:
            return None
        try:
            return ExternalRange.from_proto(getattr(self._proto, kind.external))
        except CorruptTableError as error:
            raise self._corrupt(str(error)) from None

    def without_lineage(self, kinds: Iterable[Lineage]) -> Fragment:
        """Return the fragment without some sequences; itself if they are small."""
        # One call for 100,000 fragments whose sequences are ranges.
        if self._proto.ByteSize() < _SMALL_LINEAGE:
            return self
        proto = self.to_proto()
        for kind in kinds:
            proto.ClearField(kind.value[1])
        return Fragment.from_proto(proto, self._source)

    @property
    def source(self) -> str:
        """Name in errors of the file with the fragment."""
        return self._source

    @property
    def name(self) -> str:
        """Name of the fragment in errors."""
        return f"{self._source}: fragment {self.id}"

    @property
    def has_overlays(self) -> bool:
        """Whether the fragment has overlays."""
        return bool(self._proto.overlays)

    @property
    def overlays(self) -> tuple[Overlay, ...]:
        """The overlays, oldest first.

        Raises
        ------
        CorruptTableError
        """
        try:
            return tuple(Overlay.from_proto(overlay) for overlay in self._proto.overlays)
        except CorruptTableError as error:
            raise self._corrupt(str(error)) from None

    @property
    def size_bytes(self) -> int:
        """Recorded bytes of the data files."""
        files = self._proto.files
        if len(files) == 1:
            size: int = files[0].file_size_bytes
            return size
        return sum(file.file_size_bytes for file in files)

    @property
    def is_counted(self) -> bool:
        """Whether the message has the counts of rows and of deleted rows."""
        proto = self._proto
        if not proto.physical_rows:
            return False
        return bool(not proto.HasField("deletion_file") or proto.deletion_file.num_deleted_rows)

    def to_proto(self) -> table_pb2.DataFragment:
        """Return a copy of the message, including unknown fields."""
        copy = table_pb2.DataFragment()
        copy.CopyFrom(self._proto)
        return copy

    def __eq__(self, other: object) -> bool:
        return self._proto == other._proto if isinstance(other, Fragment) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.id, self._proto.physical_rows))

    def __repr__(self) -> str:
        number = self._proto.deletion_file.num_deleted_rows
        deleted = f", num_deleted_rows={number}" if number else ""
        return f"Fragment(id={self.id}, files={self.files!r}, physical_rows={self.physical_rows}{deleted})"

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle, (self._proto.SerializeToString(), self._source)

    def _corrupt(self, what: str) -> CorruptTableError:
        return CorruptTableError(f"{self._source}: fragment {self.id}: {what}")


def check_unique(
    fragments: Iterable[table_pb2.DataFragment] | Iterable[Fragment], source: str
) -> None:
    """Refuse two fragments with one id: a change of one would change the other.

    Releases of pylance around 0.16 wrote such tables. They can be scanned, but a row address means
    two rows.

    Parameters
    ----------
    fragments : iterable of table_pb2.DataFragment or Fragment
    source : str
        Name in errors of the file with the fragments.

    Raises
    ------
    CorruptTableError
        Names the first repeated id.
    """
    seen: set[int] = set()
    for fragment in fragments:
        if fragment.id in seen:
            raise CorruptTableError(
                f"{source}: fragment id {fragment.id} occurs twice, so the table can be scanned, "
                "but not changed or read by row "
                "address; restore a version from before, or read its rows and overwrite the table "
                "with them"
            )
        seen.add(fragment.id)


def packed(fragments: Sequence[Fragment]) -> tuple[list[str], list[int], list[bytes]]:
    """Convert fragments to a few objects that pickle fast: 100,000 fragments take seconds.

    Returns
    -------
    list of str
        The distinct sources.
    list of int
        Index of the source of each fragment; empty if all have one source.
    list of bytes
        The messages.
    """
    sources = {fragment._source: 0 for fragment in fragments}
    for number, source in enumerate(sources):
        sources[source] = number
    numbers = [sources[fragment._source] for fragment in fragments] if len(sources) > 1 else []
    return list(sources), numbers, [fragment._proto.SerializeToString() for fragment in fragments]


def unpacked(sources: list[str], numbers: list[int], messages: list[bytes]) -> list[Fragment]:
    """Restore the fragments from the result of `packed`."""
    parse = table_pb2.DataFragment.FromString
    protos = [parse(message) for message in messages]
    if not numbers:
        return Fragment.from_protos(protos, sources[0]) if protos else []
    return [
        Fragment.from_proto(proto, sources[number])
        for proto, number in zip(protos, numbers, strict=True)
    ]


def _unpickle(data: bytes, source: str) -> Fragment:
    return Fragment.from_proto(table_pb2.DataFragment.FromString(data), source)
