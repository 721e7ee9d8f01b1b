"""Methods of `Dataset` for its fragments, and for commits of several transactions."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypedDict

from lance_spark.arguments import checks_arguments, takes_keywords
from lance_spark.dataset.scanning.methods import ScannerMethods
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.storage.commit.lock import CommitLock
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.fragment import Fragment

if TYPE_CHECKING:
    from lance_spark.dataset.fragments.fragment import DatasetFragment


class BulkCommitResult(TypedDict):
    """The result of `Dataset.commit_batch`: the version, and the transaction that made it."""

    dataset: FragmentMethods
    merged: Transaction


class FragmentMethods(ScannerMethods):
    """Methods of `Dataset` for its fragments."""

    def get_fragments(self, filter: object | None = None) -> list[DatasetFragment]:
        """Return the fragments of this version, in the table's order.

        Parameters
        ----------
        filter : optional
            Not supported, as in pylance.

        Raises
        ------
        UnsupportedFeatureError
            A filter is given.
        """
        from lance_spark.dataset.fragments.fragment import DatasetFragment

        if filter is not None:
            raise UnsupportedFeatureError(
                "get_fragments does not support a filter; give it to the scanner of a fragment"
            )
        return [DatasetFragment(self, fragment) for fragment in self.fragments]

    def get_fragment(self, fragment_id: int) -> DatasetFragment | None:
        """Return a fragment by its id; None if this version does not have it."""
        from lance_spark.dataset.fragments.fragment import DatasetFragment

        for fragment in self.fragments:
            if fragment.id == fragment_id:
                return DatasetFragment(self, fragment)
        return None

    @classmethod
    @takes_keywords(
        refused={
            "enable_v2_manifest_paths": (
                (True,),
                "manifests of new tables have names of scheme V2",
            )
        }
    )
    @checks_arguments
    def commit_batch(
        cls,
        dest: str | os.PathLike[str] | Self,
        transactions: Sequence[Transaction],
        commit_lock: CommitLock | None = None,
        storage_options: Mapping[str, Any] | None = None,
        *,
        detached: bool = False,
        max_retries: int = 20,
        base_store_params: Mapping[str, Mapping[str, Any]] | None = None,
        commit_timeout: datetime.timedelta | None = datetime.timedelta(seconds=1800),
    ) -> BulkCommitResult:
        """Commit several appends as one version.

        Parameters
        ----------
        dest : str, path or Dataset
            Root of the table, or of a branch.
        transactions : sequence of Transaction
            Each of an `Append`, for example of `write_fragments`.
        commit_lock, storage_options, detached, max_retries, base_store_params, commit_timeout
            As in `commit`.

        Returns
        -------
        mapping
            ``dataset``: the version that was committed; ``merged``: its transaction, with the
            fragments of all transactions in their order.

        Raises
        ------
        InvalidInputError
            There is no transaction.
        UnsupportedFeatureError
            A transaction is not an append, as in pylance.
        CommitConflictError, UncertainCommitError, StorageError
        """
        from lance_spark.table.operations.data.append import Append

        operations = [transaction.operation for transaction in transactions]
        if not operations:
            raise InvalidInputError("transactions must not be empty")
        fragments: list[Fragment] = []
        for operation in operations:
            if not isinstance(operation, Append):
                raise UnsupportedFeatureError(
                    f"commit_batch takes only transactions that append, not {operation.name}; "
                    "commit the others one by one"
                )
            fragments += operation.fragments
        properties: dict[str, str] = {}
        for transaction in transactions:
            properties.update(transaction.properties)
        merged = Transaction.new(
            min(transaction.read_version for transaction in transactions),
            Append(tuple(fragments)),
            properties,
        )
        dataset = cls.commit(
            dest,
            merged,
            commit_lock=commit_lock,
            storage_options=storage_options,
            detached=detached,
            max_retries=max_retries,
            base_store_params=base_store_params,
            commit_timeout=commit_timeout,
        )
        return {"dataset": dataset, "merged": merged}
