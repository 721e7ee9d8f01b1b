"""Fragments, as manifests and transactions name them; `fragment_files` has what they consist of.

A `Fragment` stands on its protobuf message and parses what is asked for: a manifest of 100,000
fragments opens without touching them, and what this release does not know about a fragment survives
every commit.
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
#: Bytes of sequences that it costs less to carry along than to leave out.
_SMALL_LINEAGE = 1024


class Fragment:
    """Some rows of a table: data files with the same rows, minus the deleted ones. Immutable.

    Parameters
    ----------
    id : int
        0 for a new fragment; the commit assigns one.
    files : iterable of DataFile
    physical_rows : int
        Rows of the files, deleted ones included.
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
        """Stand on a message that nobody changes any more.

        Parameters
        ----------
        proto : table_pb2.DataFragment
        source : str
            What errors call the file that the message is from.

        Raises
        ------
        CorruptTableError
            The id has more than 32 bits.
        """
        return cls.from_protos((proto,), source)[0]

    @classmethod
    def from_protos(cls, protos: Iterable[table_pb2.DataFragment], source: str) -> list[Fragment]:
        """Stand on messages that nobody changes any more; see `from_proto`.

        Raises
        ------
        CorruptTableError
            An id has more than 32 bits.
        """
        new = cls.__new__
        fragments = []
        for proto in protos:
            if proto.id > MAX_ID:
                raise CorruptTableError(f"{source}: {proto.id} is no id of a fragment")
            one = new(cls)
            one._files = None
            one._proto = proto
            one._source = source
            fragments.append(one)
        return fragments

    @property
    def id(self) -> int:
        """Unique within the table, never used again."""
        return self._proto.id

    @property
    def physical_rows(self) -> int:
        """Rows of the files, deleted ones included; 0 if an early writer did not note them (see
        `row_counts`).

        Raises
        ------
        CorruptTableError
            More than a fragment can have.
        """
        rows = self._proto.physical_rows
        if rows > MAX_PHYSICAL_ROWS:
            raise self._corrupt(f"it cannot have {rows} rows, {MAX_PHYSICAL_ROWS} are the limit")
        return rows

    @property
    def num_deleted_rows(self) -> int:
        """Rows that are deleted.

        Raises
        ------
        CorruptTableError
            More than there are.
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
        """Return the fragment with other numbers of rows, and of rows that its deletion file
        deletes.
        """
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
        """The file with the deleted rows, if any are."""
        if not self._proto.HasField("deletion_file"):
            return None
        try:
            return DeletionFile.from_proto(self._proto.deletion_file)
        except CorruptTableError as error:
            raise self._corrupt(str(error)) from None

    def has_lineage(self, kind: Lineage) -> bool:
        """Whether ids or versions of the rows are noted, wherever."""
        return self._proto.WhichOneof(kind.value[0]) is not None

    def has_lineage_column(self, kind: Lineage) -> bool:
        """Whether ids or versions of the rows are a column of a data file."""
        group, inline, _ = kind.value
        return self._proto.WhichOneof(group) not in (None, inline, kind.external)

    def inline_lineage(self, kind: Lineage) -> bytes | None:
        """Return a serialised sequence; None if there is none, or if it stands in a file."""
        group, inline, _ = kind.value
        return getattr(self._proto, inline) if self._proto.WhichOneof(group) == inline else None

    def external_lineage(self, kind: Lineage) -> ExternalRange | None:
        """Return where the serialised sequence stands in a file of its own; None if it does not.

        Raises
        ------
        CorruptTableError
            The file's path leads outside of the table.
        """
        if self._proto.WhichOneof(kind.value[0]) != kind.external:
            return None
        try:
            return ExternalRange.from_proto(getattr(self._proto, kind.external))
        except CorruptTableError as error:
            raise self._corrupt(str(error)) from None

    def without_lineage(self, kinds: Iterable[Lineage]) -> Fragment:
        """Return the fragment for readers that do not look at some of its sequences: itself, if
        they are small.
        """
        # One call for 100,000 fragments whose sequences are ranges.
        if self._proto.ByteSize() < _SMALL_LINEAGE:
            return self
        proto = self.to_proto()
        for kind in kinds:
            proto.ClearField(kind.value[1])
        return Fragment.from_proto(proto, self._source)

    @property
    def source(self) -> str:
        """What errors call the file that the fragment is from."""
        return self._source

    @property
    def name(self) -> str:
        """What errors call the fragment."""
        return f"{self._source}: fragment {self.id}"

    @property
    def has_overlays(self) -> bool:
        """Whether some cells have new values."""
        return bool(self._proto.overlays)

    @property
    def overlays(self) -> tuple[Overlay, ...]:
        """New values for some cells, oldest first.

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
        """Bytes of the data files, as far as they are known."""
        files = self._proto.files
        if len(files) == 1:
            size: int = files[0].file_size_bytes
            return size
        return sum(file.file_size_bytes for file in files)

    @property
    def is_counted(self) -> bool:
        """Whether the message says how many rows there are, and how many of them are deleted."""
        proto = self._proto
        if not proto.physical_rows:
            return False
        return bool(not proto.HasField("deletion_file") or proto.deletion_file.num_deleted_rows)

    def to_proto(self) -> table_pb2.DataFragment:
        """Return a copy of the message, with all that this release does not know."""
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
    """Refuse fragments of which two have one id: a change of one of them would change the other.

    Releases of pylance around 0.16 wrote such tables. They can be scanned; a row address or a row
    offset stands for two rows.

    Parameters
    ----------
    fragments : iterable of table_pb2.DataFragment or Fragment
    source : str
        What errors call the file that they are from.

    Raises
    ------
    CorruptTableError
        Names the first such id.
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
    """Return fragments as what is pickled at once: 100,000 objects take some seconds.

    Returns
    -------
    list of str
        The sources that there are.
    list of int
        Number of each fragment's source; empty if there is one source for all.
    list of bytes
        The messages.
    """
    sources = {fragment._source: 0 for fragment in fragments}
    for number, source in enumerate(sources):
        sources[source] = number
    numbers = [sources[fragment._source] for fragment in fragments] if len(sources) > 1 else []
    return list(sources), numbers, [fragment._proto.SerializeToString() for fragment in fragments]


def unpacked(sources: list[str], numbers: list[int], messages: list[bytes]) -> list[Fragment]:
    """Return the fragments that `packed` took apart."""
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
