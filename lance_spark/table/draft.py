"""The next manifest while an operation builds it.

A draft starts as a copy of the newest version, so that everything an operation does not touch lives on, fields unknown
to this release included. What belongs to one version alone is cleared or set anew: version, timestamp, tag, writer,
transaction, positions of sections, feature flags.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from lance_spark import __version__
from lance_spark.errors import InvalidInputError, UnsupportedError
from lance_spark.proto import table_pb2
from lance_spark.table import flags, row_ids
from lance_spark.table.fragment import Fragment
from lance_spark.table.manifest import Manifest

#: What manifests say wrote them. Other clients repair what they know early releases of "lance" to have got wrong.
WRITER_LIBRARY = "lance-spark"
_FILE_FORMAT = "lance"
_NANOS = 1_000_000_000
_MAX_U32 = 2**32 - 1


class Draft:
    """A manifest message under construction.

    Parameters
    ----------
    base : Manifest, optional
        The newest version; none for a new table.
    enable_stable_row_ids : bool
        For a new table; others stay as they were created.

    Attributes
    ----------
    proto : table_pb2.Manifest
    index_section : bytes or None
    keeps_content : bool
        Whether fragments and indexes of the base live on.
    """

    def __init__(self, base: Manifest | None, *, enable_stable_row_ids: bool = False) -> None:
        self._base = base
        self.keeps_content = True
        if base is None:
            self.proto = table_pb2.Manifest(version=1)
            self.index_section: bytes | None = None
            self._stable_row_ids = enable_stable_row_ids
            return
        self.proto = base.to_proto()
        self.proto.version = base.version + 1
        self.index_section = base.index_section
        self._stable_row_ids = base.flags.stable_row_ids
        for name in ("tag", "version_aux_data", "transaction_file"):
            self.proto.ClearField(name)

    @property
    def is_new_table(self) -> bool:
        """Whether there is no version before."""
        return self._base is None

    def set_data_storage_version(self, version: tuple[int, int]) -> None:
        """Set the version that data files have from now on."""
        self.proto.data_format.file_format = _FILE_FORMAT
        self.proto.data_format.version = f"{version[0]}.{version[1]}"

    def drop_content(self) -> None:
        """Leave fragments and indexes of the base behind. Their ids are not given again."""
        if self._base is not None and (greatest := self._base.max_fragment_id) is not None:
            self.proto.max_fragment_id = greatest
        self.proto.ClearField("fragments")
        self.index_section = None
        self.keeps_content = False

    def add_fragments(self, fragments: Iterable[Fragment]) -> None:
        """Append new fragments, with ids after the greatest one ever given, and row ids if the table has them.

        Raises
        ------
        InvalidInputError
            A fragment is of another file version than the table, or the ids are used up.
        UnsupportedError
            The table was written by a release too early to add to.
        """
        next_id = self._next_fragment_id()
        version = Manifest(self.proto, "the new manifest").data_storage_version
        for fragment in fragments:
            self._check_version(fragment, version)
            if next_id > _MAX_U32:
                raise InvalidInputError(
                    f"fragment ids are used up: {_MAX_U32} is the greatest; write the table anew"
                )
            added = self.proto.fragments.add()
            added.CopyFrom(fragment.to_proto())
            added.id = next_id
            self.proto.max_fragment_id = next_id
            next_id += 1
            if self._stable_row_ids:
                self.proto.next_row_id = row_ids.assign(
                    added, self.proto.next_row_id, self.proto.version
                )

    def finish(self, transaction_file: str) -> table_pb2.Manifest:
        """Set what belongs to this version alone, and return the message.

        Parameters
        ----------
        transaction_file : str
            Name of the file below _transactions/; empty if there is none.
        """
        proto = self.proto
        seconds, nanos = divmod(time.time_ns(), _NANOS)
        proto.timestamp.seconds, proto.timestamp.nanos = seconds, nanos
        proto.ClearField("writer_version")
        proto.writer_version.library = WRITER_LIBRARY
        proto.writer_version.version = __version__
        proto.transaction_file = transaction_file
        computed = flags.next_flags(
            proto,
            self._base.flags if self._base else None,
            stable_row_ids=self._stable_row_ids,
            keeps_content=self.keeps_content,
        )
        proto.reader_feature_flags, proto.writer_feature_flags = computed.reader, computed.writer
        return proto

    def _next_fragment_id(self) -> int:
        base = self._base
        if base is None:
            return 0
        if self.keeps_content and not base.has_writer_version:
            raise UnsupportedError(
                f"{base.name}: the table was written by an early release of Lance, which did not count rows reliably; "
                "overwrite it, or let pylance append once"
            )
        greatest = base.max_fragment_id
        return 0 if greatest is None else greatest + 1

    def _check_version(self, fragment: Fragment, version: tuple[int, int]) -> None:
        mixed = self._base is not None and self._base.flags.reader & flags.MIXED_FILE_VERSIONS
        for file in fragment.files:
            if file.version != version and not mixed:
                found, wanted = (f"{v[0]}.{v[1]}" for v in (file.version, version))
                raise InvalidInputError(
                    f"data file {file.path} is of version {found}, the table's files are of version {wanted}"
                )
