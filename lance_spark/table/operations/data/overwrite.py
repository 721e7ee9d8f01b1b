"""Overwrite: a new schema and new fragments replace all existing fragments, or create a table.

| field of `Overwrite` | content |
| --- | --- |
| fragments | the new fragments; their ids are 0 until the commit assigns ids |
| schema | the new fields; ids start from 0, or after the greatest one (writer flag 32768) |
| schema_metadata | replaces the metadata of the schema |
| config_upsert_values | keys to set in the configuration |
| initial_bases | base paths of a new table |

New fragment ids and row ids follow the greatest ids ever used. Configuration, table metadata and
base paths stay. All indexes are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.proto import file_pb2, table_pb2, transaction_pb2
from lance_spark.table.fragments import file_versions
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation

#: Operations after which a table has the same rows and columns.
KEEP_ROWS_AND_COLUMNS = frozenset(
    {"create_index", "reserve_fragments", "rewrite", "update_bases", "update_config"}
)


@dataclass(frozen=True, slots=True)
class Overwrite(Operation):
    """Replace the schema and all rows.

    - `schema`: The messages must not be modified.
    - `data_storage_version`: File version of the table; by default it stays, and a new table gets
      the version of the files. This and the attributes below are not part of the transaction.
    - `table_metadata`: Keys to set in the metadata of the table; those with None are removed.
    - `dictionaries`: Dictionary values of file version 0.1, to which the fields refer.
    - `exactly_next`: Whether the overwrite must become the version after the version on which it
      was planned: it has all rows of that version which it does not change. Each other version is a
      conflict.
    - `kept_columns`: The columns of the table, if the overwrite replaces the rows alone: a table
      that has other columns by the time of the commit is a conflict.
    - `reads_rows`: Whether the new rows were made of the rows of the version on which the overwrite
      was planned: a version that changes rows or columns is a conflict.
    """

    name: ClassVar[str] = "overwrite"

    fragments: tuple[Fragment, ...]
    schema: tuple[file_pb2.Field, ...]
    schema_metadata: Mapping[str, bytes] = field(default_factory=dict)
    config_upsert_values: Mapping[str, str] = field(default_factory=dict)
    initial_bases: tuple[table_pb2.BasePath, ...] = ()
    data_storage_version: tuple[int, int] | None = field(default=None, compare=False)
    table_metadata: Mapping[str, str | None] = field(default_factory=dict, compare=False)
    dictionaries: bytes = field(default=b"", repr=False, compare=False)
    exactly_next: bool = field(default=False, compare=False)
    kept_columns: pa.Schema | None = field(default=None, repr=False, compare=False)
    reads_rows: bool = field(default=False, compare=False)

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Overwrite, source: str) -> Overwrite:
        return cls(
            fragments=tuple(Fragment.from_proto(proto, source) for proto in message.fragments),
            schema=tuple(message.schema),
            schema_metadata=dict(message.schema_metadata),
            config_upsert_values=dict(message.config_upsert_values),
            initial_bases=tuple(message.initial_bases),
        )

    @property
    def config_keys(self) -> frozenset[str]:
        return frozenset(self.config_upsert_values)

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        message = transaction.overwrite
        message.SetInParent()
        message.fragments.extend(fragment.to_proto() for fragment in self.fragments)
        message.schema.extend(self.schema)
        message.schema_metadata.update(self.schema_metadata)
        message.config_upsert_values.update(self.config_upsert_values)
        message.initial_bases.extend(self.initial_bases)

    def conflict(self, committed: Operation) -> Conflict:
        if self.exactly_next or (self.reads_rows and committed.name not in KEEP_ROWS_AND_COLUMNS):
            return Conflict.RETRYABLE
        if self.config_keys & committed.config_keys:
            return Conflict.INCOMPATIBLE
        return self.conflict_by_matrix(committed)

    def apply(self, builder: ManifestBuilder) -> None:
        """Replace the schema and the fragments.

        Raises InvalidInputError: the fields are not a tree, or the fragments do not fit the table,
        or an existing table would get base paths. Raises CommitConflictError: the table never
        reuses field ids, and another client has used ids of the new fields; or it has changed
        columns that the overwrite keeps.
        """
        if (
            self.kept_columns is not None
            and builder.base is not None
            and not builder.base.schema.to_arrow().equals(self.kept_columns, check_metadata=True)
        ):
            raise CommitConflictError(
                "another client changed the columns of the table while its rows were overwritten; "
                "write the rows again",
                retryable=True,
            )
        if self.initial_bases and not builder.is_new_table:
            raise InvalidInputError(
                "an overwrite of an existing table cannot add base paths (initial_bases), so its "
                "files below them could not be read; add them first with Dataset.add_bases"
            )
        first = builder.base.first_new_field_id if builder.base is not None else 0
        if any(field.id < first for field in self.schema):
            raise CommitConflictError(
                f"the table never reuses field ids, and ids up to {first - 1} are in use; write "
                "the rows again",
                retryable=True,
            )
        proto = builder.proto
        builder.drop_content()
        builder.dictionaries = self.dictionaries
        # A clustering names columns by field ids, which start from 0 again.
        proto.ClearField("clustering")
        # No values of the columns before are left.
        proto.ClearField("fields")
        builder.set_fields(self.schema)
        proto.ClearField("schema_metadata")
        proto.schema_metadata.update(self.schema_metadata)
        if self.data_storage_version is not None:
            builder.set_data_storage_version(self.data_storage_version)
        elif builder.is_new_table:
            # A user who builds the operation does not state a version.
            builder.set_data_storage_version(_version_of(self.fragments))
        if builder.is_new_table:
            proto.base_paths.extend(self.initial_bases)
        proto.config.update(self.config_upsert_values)
        for key, value in self.table_metadata.items():
            if value is None:
                proto.table_metadata.pop(key, None)
            else:
                proto.table_metadata[key] = value
        builder.add_fragments(self.fragments)


def _version_of(fragments: Iterable[Fragment]) -> tuple[int, int]:
    """Return the file version of a new table: that of its files, as in pylance."""
    versions = (file.version for fragment in fragments for file in fragment.files)
    # The commit refuses files of other versions.
    return next(versions, file_versions.DEFAULT)
