"""`write_fragments`: writes rows to the files of new fragments, without a commit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, overload

import pyarrow as pa

from lance_spark.arguments import checks_arguments, instances, pylance_keywords
from lance_spark.dataset.changes.write_options import (
    REFUSED,
    UNUSED,
    FileKeywords,
    FragmentKeywords,
)
from lance_spark.dataset.changes.writing import plan_write
from lance_spark.errors import InvalidInputError
from lance_spark.keywords import checked, of_group
from lance_spark.storage.options.base_paths import with_base_params
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.write_progress import check_observer

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.table.commit.transaction import Transaction
    from lance_spark.table.commit.write_job import Mode

#: Rows that can be written.
Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch]

#: Parameters of pylance that find the table.
_REFUSED = dict.fromkeys(
    ("namespace_client", "table_id"),
    ((), "open the table by the namespace, and give the Dataset as dataset_uri"),
)


@overload
def write_fragments(
    data: Rows,
    dataset_uri: str | os.PathLike[str] | Dataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: Literal[False] = False,
    mode: Mode = "append",
    **keywords: Unpack[FragmentKeywords],
) -> list[Fragment]: ...


@overload
def write_fragments(
    data: Rows,
    dataset_uri: str | os.PathLike[str] | Dataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: Literal[True],
    mode: Mode = "append",
    **keywords: Unpack[FragmentKeywords],
) -> Transaction: ...


@pylance_keywords(unused=UNUSED, refused={**REFUSED, **_REFUSED})
@checks_arguments
def write_fragments(
    data: Rows,
    dataset_uri: str | os.PathLike[str] | Dataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: bool = False,
    mode: Mode = "append",
    **keywords: Unpack[FragmentKeywords],
) -> list[Fragment] | Transaction:
    """Write rows to the files of new fragments. No version refers to them before a commit.

    For programs that distribute a write themselves: each worker writes fragments, and one process
    commits all of them.

    Parameters
    ----------
    data, schema
        As in `write_dataset`.
    dataset_uri : str, path or Dataset
        Root of the table.
    return_transaction : bool
        Whether to return a transaction in place of the fragments, for `Dataset.commit` or
        `Dataset.commit_batch`.
    mode : str
        ``append`` (to the columns of the table), ``create`` or ``overwrite``.

    Returns
    -------
    list of Fragment, or Transaction
        The ids of the fragments are 0 until the commit.

    Raises
    ------
    SchemaMismatchError
        The schema of the data does not fit the table.
    InvalidInputError, InvalidOptionError, UnsupportedTypeError, StorageError

    Examples
    --------
    >>> fragments = write_fragments(pa.table({"id": [3]}), dataset)
    >>> Dataset.commit(dataset, LanceOperation.Append(fragments), dataset.version)
    """
    from lance_spark.table.commit.transaction import Transaction, with_message

    given = checked(FragmentKeywords, keywords)
    if not isinstance(dataset_uri, str | os.PathLike):
        if not hasattr(dataset_uri, "_storage_options"):
            raise InvalidInputError(
                f"dataset_uri must be a path or a Dataset, not {type(dataset_uri).__name__}"
            )
        if given["storage_options"] is None:
            given["storage_options"] = dataset_uri._storage_options
        dataset_uri = dataset_uri.uri
    check_observer(given["progress"])
    properties = with_message(given["transaction_properties"], None)
    storage_options = with_base_params(given["storage_options"], given["base_store_params"])
    files = of_group(FileKeywords, keywords)
    job, batches = plan_write(data, dataset_uri, mode, schema, storage_options, **files)
    fragments = job.writer(observer=given["progress"]).write_all(batches)
    if not return_transaction:
        return fragments
    operation = job.operation(fragments)
    return Transaction.new(job.read_version, operation, properties)


def as_fragments(fragments: Iterable[Any]) -> Sequence[Fragment]:
    """Return fragments that a caller gave: metadata, or fragments of a dataset.

    Raises
    ------
    InvalidInputError
        An item is not a fragment.
    """
    metadata = [getattr(item, "metadata", item) for item in fragments]
    return instances(metadata, Fragment, "fragments", "Fragment (the metadata of a fragment)")
