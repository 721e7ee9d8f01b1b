"""What there is to say of a version of a table, as it is told: text, page and notebook have it from here.

`lance_spark.inspect.collect` says where each fact is from.
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
        Its Arrow type.
    nullable : bool
    """

    name: str
    field_id: int
    kind: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class FragmentFacts:
    """A fragment, as the manifest has it.

    Attributes
    ----------
    id : int
    num_rows : int
        Rows of its files, deleted ones included; 0 if an early writer did not note them.
    num_deleted_rows : int
    num_files : int
    num_bytes : int
        Of its data files, as far as noted.
    deletion_file : str
        ``arrow`` or ``bin``; empty if there is none.
    """

    id: int
    num_rows: int
    num_deleted_rows: int
    num_files: int
    num_bytes: int
    deletion_file: str


@dataclass(frozen=True, slots=True)
class BaseFacts:
    """A place that data files lie in: the table itself, or a base path.

    Attributes
    ----------
    id : int or None
        None for the table itself.
    name : str or None
    path : str
        Without credentials.
    is_dataset_root : bool
        Whether data files lie in data/ below it.
    num_fragments : int
        With data files there.
    num_files : int
        Data files.
    num_bytes : int
        Of these files, as far as noted.
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
    """What one manifest says.

    Attributes
    ----------
    name : str
        Path of the table, without credentials.
    branch : str or None
    version : int
    timestamp : datetime
        In UTC.
    data_storage_version : str
    file_versions : tuple of str
        Versions of the data files, with their numbers, for example ``2.1 (12)``.
    stable_row_ids : bool
    reader_flags, writer_flags : int
    columns : tuple of SchemaColumn
    fragments : tuple of FragmentFacts
    config, metadata : mapping of str to str
    bases : tuple of BaseFacts
        The table itself, then its base paths by id.
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
        """Rows of all files, deleted ones included."""
        return sum(one.num_rows for one in self.fragments)

    @property
    def num_deleted_rows(self) -> int:
        """Rows that are deleted, but still in files."""
        return sum(one.num_deleted_rows for one in self.fragments)

    @property
    def num_rows(self) -> int:
        """Rows of the table."""
        return self.physical_rows - self.num_deleted_rows

    @property
    def num_files(self) -> int:
        """Data files."""
        return sum(one.num_files for one in self.fragments)

    @property
    def num_bytes(self) -> int:
        """Bytes of the data files, as far as noted."""
        return sum(one.num_bytes for one in self.fragments)


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A data file whose end was read.

    Attributes
    ----------
    fragment_id : int
    path : str
        As the manifest has it.
    base_id : int or None
        The base path that it lies below, if not in the table itself.
    version : str
    num_rows, num_bytes : int
    columns : tuple of ColumnPages
        Those that were asked for, in the file's order.
    problem : str
        Why it cannot be read; empty if it can.
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
    """A column, over all files that were read.

    Attributes
    ----------
    path, kind : str
        As in `ColumnPages`.
    num_bytes, num_pages, num_rows : int
    encodings : tuple of (str, int, int)
        Each with its pages and their bytes, that of the most bytes first.
    """

    path: str
    kind: str
    num_bytes: int
    num_pages: int
    num_rows: int
    encodings: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class PastVersion:
    """A version of the history.

    Attributes
    ----------
    version : int
    timestamp : datetime
    operation : str
        Empty if its writer left nothing behind.
    properties : mapping of str to str
        What the writer noted.
    read_version : int or None
        The version that it was planned on.
    num_fragments, num_rows, num_deleted_rows, num_bytes : int
        `num_rows` without the deleted ones.
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

    @property
    def message(self) -> str:
        """The commit message; empty if there is none."""
        return self.properties.get(MESSAGE, "")


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """An index.

    Attributes
    ----------
    name, kind : str
    columns : tuple of str
    num_rows : int
        Live rows of the fragments that it covers.
    num_segments : int
    num_bytes : int or None
        Of its files, if they are noted.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    num_rows: int
    num_segments: int
    num_bytes: int | None


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A version of a table with its files, and what is around it.

    Attributes
    ----------
    version : VersionFacts
    versions : tuple of PastVersion
        Newest first.
    num_versions : int
        How many there are.
    files : tuple of FileFacts
        Those that were read.
    columns : tuple of ColumnTotal
        Over these files.
    indexes : tuple of IndexFacts
    tags : mapping of str to str
        What each names: a version, or branch and version.
    branches : mapping of str to str
        What each was made from.
    problems : tuple of str
        What could not be read.
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
