"""Clone: the first version of a table or branch that is made from a version of another.

| field of `Clone` | content |
| --- | --- |
| is_shallow | whether the files stay where they are |
| ref_name | branch of the source, none for the main one |
| ref_version | version of the source; the clone's first version has the same number |
| ref_path | root of the source |
| branch_name | the branch that is made; none for a table |

A shallow clone gets the root of its source as one more base path, and every data file, deletion
file and index that has no base path yet is said to lie below it. A deep clone has copies of all
files, so that nothing lies below a base path. Everything else is taken over: schema, indexes, row
ids, configuration. Nothing can come in between: there are no conflicts. Specification:
table/commit/transaction.md, table/layout.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lance_spark.errors import InvalidInputError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation

KIND = "clone"


@dataclass(frozen=True, slots=True)
class Clone(Operation):
    """Take over a version of another table, or of another branch.

    Attributes
    ----------
    is_shallow : bool
    ref_version : int
    ref_path : str
    ref_name : str, optional
    branch_name : str, optional
    renamed : mapping of (base id or None, str) to str
        New names of copied data files, where two had one name. Not part of the transaction, as the
        next one.
    kept_bases : frozenset of int
        Base paths that a deep clone keeps, for what its data refers to.
    """

    is_shallow: bool
    ref_version: int
    ref_path: str
    ref_name: str | None = None
    branch_name: str | None = None
    renamed: Mapping[tuple[int | None, str], str] = field(default_factory=dict, compare=False)
    kept_bases: frozenset[int] = field(default=frozenset(), compare=False)

    @property
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`."""
        return KIND

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Clone, source: str) -> Clone:
        """Parse the message; `source` is what errors call its file."""
        return cls(
            message.is_shallow,
            message.ref_version,
            message.ref_path,
            message.ref_name if message.HasField("ref_name") else None,
            message.branch_name if message.HasField("branch_name") else None,
        )

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""
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
        """Tell what a committed operation means: nothing, the clone is of one version."""
        return Conflict.COMPATIBLE

    def apply(self, draft: ManifestBuilder) -> None:
        """Refuse: a clone is no change of a table.

        Raises
        ------
        InvalidInputError
        """
        raise InvalidInputError(
            "a clone is the first version of another table: use Dataset.shallow_clone, deep_clone "
            "or create_branch"
        )

    def make(self, draft: ManifestBuilder) -> None:
        """Turn a draft on the version of the source into the first version of the clone."""
        proto = draft.proto
        proto.version = self.ref_version
        if self.branch_name is None:
            proto.ClearField("branch")
        else:
            proto.branch = self.branch_name
        if self.is_shallow:
            self._refer(draft, self._add_base(proto))
        else:
            self._own(draft)

    def _add_base(self, proto: table_pb2.Manifest) -> int:
        number = max((base.id + 1 for base in proto.base_paths), default=0)
        proto.base_paths.add(
            id=number, path=self.ref_path, is_dataset_root=True, name=self.ref_name
        )
        return number

    def _refer(self, draft: ManifestBuilder, base: int) -> None:
        for fragment in draft.proto.fragments:
            for file in _files(fragment):
                if not file.HasField("base_id"):
                    file.base_id = base
            if fragment.HasField("deletion_file") and not fragment.deletion_file.HasField(
                "base_id"
            ):
                fragment.deletion_file.base_id = base
        if draft.has_indices:
            for index in draft.indices.indices:
                if not index.HasField("base_id"):
                    index.base_id = base

    def _own(self, draft: ManifestBuilder) -> None:
        proto = draft.proto
        for fragment in proto.fragments:
            for file in _files(fragment):
                key = (file.base_id if file.HasField("base_id") else None, file.path)
                file.path = self.renamed.get(key, file.path)
                file.ClearField("base_id")
            if fragment.HasField("deletion_file"):
                fragment.deletion_file.ClearField("base_id")
        if draft.has_indices:
            for index in draft.indices.indices:
                index.ClearField("base_id")
        kept = [base for base in proto.base_paths if base.id in self.kept_bases]
        rest = table_pb2.Manifest(base_paths=kept)
        proto.ClearField("base_paths")
        proto.MergeFrom(rest)


def _files(fragment: table_pb2.DataFragment) -> list[table_pb2.DataFile]:
    return [*fragment.files, *(overlay.data_file for overlay in fragment.overlays)]
