"""Clone: the first version of a table or branch, made from a version of another table or branch.

| field of `Clone` | content |
| --- | --- |
| is_shallow | whether the clone refers to the files of the source |
| ref_name | branch of the source; none for the main branch |
| ref_version | version of the source; the clone's first version has the same number |
| ref_path | root of the source |
| branch_name | the new branch; none for a table |

A shallow clone has the root of its source as one more base path, and data files, deletion files and
indexes without a base path get this base path. A deep clone has copies of all files, which have no
base path. Schema, indexes, row ids and configuration are copied from the source. A clone has no
conflicts. Specification: table/commit/transaction.md, table/layout.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from lance_spark.errors import InvalidInputError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation


@dataclass(frozen=True, slots=True)
class Clone(Operation):
    """Create the first version of a table or branch.

    - `renamed`: New names of copied data files whose names were not unique. This and the attribute
      below are not part of the transaction.
    - `kept_bases`: Ids of the base paths that a deep clone keeps, because its data refers to files
      below them.
    """

    name: ClassVar[str] = "clone"

    is_shallow: bool
    ref_version: int
    ref_path: str
    ref_name: str | None = None
    branch_name: str | None = None
    renamed: Mapping[tuple[int | None, str], str] = field(default_factory=dict, compare=False)
    kept_bases: frozenset[int] = field(default=frozenset(), compare=False)

    @property
    def is_table(self) -> bool:
        """Whether the clone is a table that shares the files of its source."""
        return self.is_shallow and self.branch_name is None

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Clone, source: str) -> Clone:
        return cls(
            message.is_shallow,
            message.ref_version,
            message.ref_path,
            message.ref_name if message.HasField("ref_name") else None,
            message.branch_name if message.HasField("branch_name") else None,
        )

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        message = transaction.clone
        message.SetInParent()
        message.is_shallow = self.is_shallow
        message.ref_version = self.ref_version
        message.ref_path = self.ref_path
        if self.ref_name is not None:
            message.ref_name = self.ref_name
        if self.branch_name is not None:
            message.branch_name = self.branch_name

    def conflict(self, committed: Operation) -> Conflict:
        """Return that a clone, which reads one version, has no conflicts."""
        return Conflict.COMPATIBLE

    def apply(self, builder: ManifestBuilder) -> None:
        """Raise an error: a clone does not change a table. Raises InvalidInputError."""
        raise InvalidInputError(
            "a clone is the first version of another table and cannot be committed to this one; "
            "use Dataset.shallow_clone, deep_clone or create_branch"
        )

    def apply_to_source(self, builder: ManifestBuilder) -> None:
        """Change the manifest of the source version into the first manifest of the clone."""
        proto = builder.proto
        proto.version = self.ref_version
        if self.branch_name is None:
            proto.ClearField("branch")
        else:
            proto.branch = self.branch_name
        if self.is_shallow:
            self._set_base_ids(builder, self._add_source_base(proto))
        else:
            self._clear_base_ids(builder)

    def _add_source_base(self, proto: table_pb2.Manifest) -> int:
        base_id = max((base.id + 1 for base in proto.base_paths), default=0)
        proto.base_paths.add(
            id=base_id, path=self.ref_path, is_dataset_root=True, name=self.ref_name
        )
        return base_id

    def _set_base_ids(self, builder: ManifestBuilder, base_id: int) -> None:
        """Set the base path of data files, deletion files and indexes that have none."""
        for fragment in builder.proto.fragments:
            for file in _data_files(fragment):
                if not file.HasField("base_id"):
                    file.base_id = base_id
            if fragment.HasField("deletion_file") and not fragment.deletion_file.HasField(
                "base_id"
            ):
                fragment.deletion_file.base_id = base_id
        if builder.has_indices:
            for index in builder.indices.indices:
                if not index.HasField("base_id"):
                    index.base_id = base_id

    def _clear_base_ids(self, builder: ManifestBuilder) -> None:
        proto = builder.proto
        for fragment in proto.fragments:
            for file in _data_files(fragment):
                key = (file.base_id if file.HasField("base_id") else None, file.path)
                file.path = self.renamed.get(key, file.path)
                file.ClearField("base_id")
            if fragment.HasField("deletion_file"):
                fragment.deletion_file.ClearField("base_id")
        if builder.has_indices:
            for index in builder.indices.indices:
                index.ClearField("base_id")
        kept = [base for base in proto.base_paths if base.id in self.kept_bases]
        bases = table_pb2.Manifest(base_paths=kept)
        proto.ClearField("base_paths")
        proto.MergeFrom(bases)


def _data_files(fragment: table_pb2.DataFragment) -> list[table_pb2.DataFile]:
    return [*fragment.files, *(overlay.data_file for overlay in fragment.overlays)]
