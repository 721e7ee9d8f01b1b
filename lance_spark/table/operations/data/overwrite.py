"""Overwrite: a new schema and new fragments instead of those of the newest version; also how a
table is created.

| field of `Overwrite` | content |
| --- | --- |
| fragments | the new fragments; their ids are 0 until the commit gives them some |
| schema | the new columns; field ids start from 0 again, or after the greatest one ever given (writer flag 32768) |
| schema_metadata | the new schema's, instead of the old one's |
| config_upsert_values | configuration to set beside what the table has |
| initial_bases | base paths of a new table |

Fragment ids go on after the greatest one ever given, row ids too. Configuration, table metadata and
base paths stay; indexes go with the columns they were made for.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from lance_spark.errors import CommitConflictError
from lance_spark.proto import file_pb2, table_pb2, transaction_pb2
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation

KIND = "overwrite"
_V = TypeVar("_V", str, bytes)


@dataclass(frozen=True, slots=True)
class Overwrite(Operation):
    """Replace schema and rows.

    Attributes
    ----------
    fragments : tuple of Fragment
    schema : tuple of file_pb2.Field
        Nobody changes the messages any more.
    schema_metadata : mapping of str to bytes
    config_upsert_values : mapping of str to str
    initial_bases : tuple of table_pb2.BasePath
    data_storage_version : tuple of int, optional
        Version of the files; the table's if none is given. Not part of the transaction, as the next
        one.
    table_metadata : mapping of str to str
        Set beside what the table has.
    dictionaries : bytes
        Dictionary values of version 0.1, which the fields refer to.
    """

    conflicts: ClassVar[Mapping[str, Conflict]] = {
        "append": Conflict.COMPATIBLE,
        "delete": Conflict.COMPATIBLE,
        "overwrite": Conflict.RETRYABLE,
        "create_index": Conflict.COMPATIBLE,
        "rewrite": Conflict.COMPATIBLE,
        "merge": Conflict.COMPATIBLE,
        "restore": Conflict.COMPATIBLE,
        "reserve_fragments": Conflict.COMPATIBLE,
        "update": Conflict.COMPATIBLE,
        "project": Conflict.COMPATIBLE,
        "update_config": Conflict.COMPATIBLE,
        "data_replacement": Conflict.COMPATIBLE,
        "update_mem_wal_state": Conflict.INCOMPATIBLE,
        "clone": Conflict.COMPATIBLE,
        "update_bases": Conflict.COMPATIBLE,
        "data_overlay": Conflict.COMPATIBLE,
    }

    fragments: tuple[Fragment, ...]
    schema: tuple[file_pb2.Field, ...]
    schema_metadata: Mapping[str, bytes] = field(default_factory=dict)
    config_upsert_values: Mapping[str, str] = field(default_factory=dict)
    initial_bases: tuple[table_pb2.BasePath, ...] = ()
    data_storage_version: tuple[int, int] | None = field(default=None, compare=False)
    table_metadata: Mapping[str, str] = field(default_factory=dict, compare=False)
    dictionaries: bytes = field(default=b"", repr=False, compare=False)

    @property
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`."""
        return KIND

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Overwrite, source: str) -> Overwrite:
        """Parse the message; `source` is what errors call its file."""
        return cls(
            fragments=tuple(Fragment.from_proto(proto, source) for proto in message.fragments),
            schema=tuple(message.schema),
            schema_metadata=dict(message.schema_metadata),
            config_upsert_values=dict(message.config_upsert_values),
            initial_bases=tuple(message.initial_bases),
        )

    @property
    def config_keys(self) -> frozenset[str]:
        """Keys of the table's configuration that are set."""
        return frozenset(self.config_upsert_values)

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""
        message = transaction.overwrite
        message.SetInParent()
        message.fragments.extend(fragment.to_proto() for fragment in self.fragments)
        message.schema.extend(self.schema)
        _update(message.schema_metadata, self.schema_metadata)
        _update(message.config_upsert_values, self.config_upsert_values)
        message.initial_bases.extend(self.initial_bases)

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what a committed operation means for this one."""
        if self.config_keys & committed.config_keys:
            return Conflict.INCOMPATIBLE
        return self.conflicts.get(committed.kind, Conflict.RETRYABLE)

    def apply(self, draft: ManifestBuilder) -> None:
        """Replace what is there.

        Raises
        ------
        InvalidInputError
            The fields are no tree, or the fragments do not fit the table.
        CommitConflictError
            Others gave its field ids to new columns, in a table that gives none twice.
        """
        first = draft.base.first_new_field_id if draft.base is not None else 0
        if any(item.id < first for item in self.schema):
            raise CommitConflictError(
                f"the table uses no field id again, and ids up to {first - 1} are given; write the "
                "rows again",
                retryable=True,
            )
        proto = draft.proto
        draft.drop_content()
        draft.dictionaries = self.dictionaries
        # Clusterings name columns by their ids, which start anew.
        proto.ClearField("clustering")
        draft.set_fields(self.schema)
        proto.ClearField("schema_metadata")
        _update(proto.schema_metadata, self.schema_metadata)
        if self.data_storage_version is not None:
            draft.set_data_storage_version(self.data_storage_version)
        if draft.is_new_table:
            proto.base_paths.extend(self.initial_bases)
        _update(proto.config, self.config_upsert_values)
        _update(proto.table_metadata, self.table_metadata)
        draft.add_fragments(self.fragments)


def _update(target: MutableMapping[str, _V], values: Mapping[str, _V]) -> None:
    for key, value in values.items():
        target[key] = value
