"""The data classes of a report about a version of a table.

`lance_spark.inspect.collect` makes a report. The text, the HTML page and the notebook view are made
from it.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field

from lance_spark.inspect.pages import ColumnPages
from lance_spark.table.commit.transaction import MESSAGE


@dataclass(frozen=True, slots=True)
class SchemaColumn:
    """A top-level column of the table.

    Attributes
    ----------
    name : str
    field_id : int
    kind : str
        The Arrow type.
    nullable : bool
    """

    name: str
    field_id: int
    kind: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class FragmentFacts:
    """A fragment, as recorded in the manifest.

    Attributes
    ----------
    id : int
    num_rows : int
        Physical rows, deleted rows included; 0 if an early writer did not record them.
    num_deleted_rows : int
    num_files : int
        Number of data files.
    num_bytes : int
        Size of its data files, as far as recorded.
    deletion_file : str
        ``arrow`` or ``bin``; empty if it has no deletion file.
    """

    id: int
    num_rows: int
    num_deleted_rows: int
    num_files: int
    num_bytes: int
    deletion_file: str


@dataclass(frozen=True, slots=True)
class BaseFacts:
    """A location of data files: the table's own root, or a base path.

    Attributes
    ----------
    id : int or None
        Id of the base path; None for the table's root.
    name : str or None
    path : str
        The path without credentials.
    is_dataset_root : bool
        Whether data files are in its folder data/.
    num_fragments : int
        Number of fragments with data files there.
    num_files : int
        Number of data files there.
    num_bytes : int
        Size of these files, as far as recorded.
    """

    id: int | None
    name: str | None
    path: str
    is_dataset_root: bool
    num_fragments: int
    num_files: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """The content of one manifest.

    Attributes
    ----------
    name : str
        Path of the table without credentials.
    branch : str or None
        Name of the branch; None for the main branch.
    version : int
    timestamp : datetime
        Time of the commit in UTC.
    data_storage_version : str
        File version of new data files.
    file_versions : tuple of str
        File versions of the data files with their counts, for example ``2.1 (12)``.
    stable_row_ids : bool
    reader_flags, writer_flags : int
    columns : tuple of SchemaColumn
    fragments : tuple of FragmentFacts
    config, metadata : mapping of str to str
    bases : tuple of BaseFacts
        The table's root, then its base paths by id.
    """

    name: str
    branch: str | None
    version: int
    timestamp: datetime.datetime
    data_storage_version: str
    file_versions: tuple[str, ...]
    stable_row_ids: bool
    reader_flags: int
    writer_flags: int
    columns: tuple[SchemaColumn, ...]
    fragments: tuple[FragmentFacts, ...]
    config: Mapping[str, str]
    metadata: Mapping[str, str]
    bases: tuple[BaseFacts, ...] = ()

    @property
    def physical_rows(self) -> int:
        """Number of physical rows, deleted rows included."""
        return sum(fragment.num_rows for fragment in self.fragments)

    @property
    def num_deleted_rows(self) -> int:
        """Number of deleted rows that data files still hold."""
        return sum(fragment.num_deleted_rows for fragment in self.fragments)

    @property
    def num_rows(self) -> int:
        """Number of live rows."""
        return self.physical_rows - self.num_deleted_rows

    @property
    def num_files(self) -> int:
        """Number of data files."""
        return sum(fragment.num_files for fragment in self.fragments)

    @property
    def num_bytes(self) -> int:
        """Size of the data files, as far as recorded."""
        return sum(fragment.num_bytes for fragment in self.fragments)


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A data file whose metadata was read.

    Attributes
    ----------
    fragment_id : int
    path : str
        The path in the manifest.
    base_id : int or None
        Id of its base path; None for the table's root.
    version : str
        The file version.
    num_rows, num_bytes : int
    columns : tuple of ColumnPages
        The requested columns, in the order of the file.
    problem : str
        The error that occurred while the file was read; empty if there was none.
    """

    fragment_id: int
    path: str
    base_id: int | None
    version: str
    num_rows: int
    num_bytes: int
    columns: tuple[ColumnPages, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ColumnTotal:
    """Totals of a column over all data files that were read.

    Attributes
    ----------
    path, kind : str
        As in `ColumnPages`.
    num_bytes, num_pages, num_rows : int
    encodings : tuple of (str, int, int)
        Each encoding with the number of its pages and their bytes; most bytes first.
    """

    path: str
    kind: str
    num_bytes: int
    num_pages: int
    num_rows: int
    encodings: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class PastVersion:
    """A version in the history of a branch.

    Attributes
    ----------
    version : int
    timestamp : datetime
    operation : str
        Name of the operation; empty if no transaction is recorded.
    properties : mapping of str to str
        Properties of the transaction.
    read_version : int or None
        The version that the operation was planned on.
    num_fragments, num_rows, num_deleted_rows, num_bytes : int
        `num_rows` does not include deleted rows.
    statement : str
        Name of the operation in SQL; empty if no transaction is recorded.
    parameters : mapping of str to str
        What is known of the parameters of the statement.
    """

    version: int
    timestamp: datetime.datetime
    operation: str
    properties: Mapping[str, str]
    read_version: int | None
    num_fragments: int
    num_rows: int
    num_deleted_rows: int
    num_bytes: int
    statement: str
    parameters: Mapping[str, str]

    @property
    def message(self) -> str:
        """The commit message; empty if the transaction has none."""
        return self.properties.get(MESSAGE, "")


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The partitions of a segment of a vector index.

    Attributes
    ----------
    metric : str
    rows : tuple of int
        Rows of each partition in the files. Deleted rows are counted until the index is extended.
    loss : float or None
        Sum of the distances of the trained vectors from the centres of their partitions, if it is
        recorded.
    """

    metric: str
    rows: tuple[int, ...]
    loss: float | None


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment of an index.

    Attributes
    ----------
    uuid : str
        Name of its folder below _indices/.
    dataset_version : int
        The version of the table that it was built on.
    index_version : int
        Version of the format of its files.
    created_at : datetime or None
        If recorded, in UTC.
    age : timedelta or None
        Time since then, when the report was made.
    num_bytes : int or None
        Size of its files, if recorded.
    num_fragments : int
        Fragments of the version that it covers.
    num_rows : int
        Live rows of these fragments.
    num_removed_fragments : int
        Fragments that it covers, but the version does not have: their rows are still in its files.
    num_moved_fragments : int
        Fragments of which it has old row addresses, because a deferred compaction moved the rows.
    partitions : PartitionFacts or None
        For an index of vectors whose files can be read.
    """

    uuid: str
    dataset_version: int
    index_version: int
    created_at: datetime.datetime | None
    age: datetime.timedelta | None
    num_bytes: int | None
    num_fragments: int
    num_rows: int
    num_removed_fragments: int
    num_moved_fragments: int
    partitions: PartitionFacts | None = None


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """An index.

    Attributes
    ----------
    name, kind : str
        Its name and type.
    columns : tuple of str
    num_rows : int
        Live rows of the fragments that it covers.
    num_segments : int
    num_bytes : int or None
        Size of its files, if recorded.
    num_fragments : int
        Fragments of the version that it covers.
    num_uncovered_fragments, num_uncovered_rows : int
        Other fragments, and their live rows, which a query scans.
    num_deleted_rows : int
        Deleted rows of the fragments that it covers. Those that were deleted after it was built are
        still in its files; answers leave them out.
    num_removed_fragments, num_moved_fragments : int
        As in `SegmentFacts`, of all segments.
    segments : tuple of SegmentFacts
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    num_rows: int
    num_segments: int
    num_bytes: int | None
    num_fragments: int = 0
    num_uncovered_fragments: int = 0
    num_uncovered_rows: int = 0
    num_deleted_rows: int = 0
    num_removed_fragments: int = 0
    num_moved_fragments: int = 0
    segments: tuple[SegmentFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A report about a version of a table, its files, history, indexes, tags and branches.

    Attributes
    ----------
    version : VersionFacts
    versions : tuple of PastVersion
        The newest versions of the branch, newest first.
    num_versions : int
        Number of all versions of the branch.
    files : tuple of FileFacts
        The data files that were read.
    columns : tuple of ColumnTotal
        Totals over these files.
    indexes : tuple of IndexFacts
    tags : mapping of str to str
        The version of each tag, and its branch.
    branches : mapping of str to str
        The parent version of each branch, and its branch.
    problems : tuple of str
        Files and indexes that could not be read, with the errors.
    """

    version: VersionFacts
    versions: tuple[PastVersion, ...]
    num_versions: int
    files: tuple[FileFacts, ...]
    columns: tuple[ColumnTotal, ...]
    indexes: tuple[IndexFacts, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    branches: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
