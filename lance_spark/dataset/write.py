"""`write_dataset`: writes rows to a table in one commit, without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Unpack, cast

import pyarrow as pa

from lance_spark.arguments import pylance_keywords
from lance_spark.dataset.dataset import Dataset
from lance_spark.dataset.decorators import prefixes_errors_at
from lance_spark.dataset.write_options import (
    REFUSED,
    UNUSED,
    InsertKeywords,
    PlaceKeywords,
    WriteKeywords,
)
from lance_spark.keywords import checked, of_group
from lance_spark.namespace import table_entry
from lance_spark.progress import reports_progress
from lance_spark.storage.commit import with_lock, with_store
from lance_spark.storage.options import with_base_params

if TYPE_CHECKING:
    from lance_spark.table.commit.write import Mode


@pylance_keywords(renamed={"data_obj": "data"}, unused=UNUSED, refused=REFUSED)
@prefixes_errors_at
@reports_progress
def write_dataset(
    data: pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch],
    uri: str | os.PathLike[str] | None = None,
    schema: pa.Schema | Mode | None = None,
    mode: Mode = "create",
    **keywords: Unpack[WriteKeywords],
) -> Dataset:
    """Write rows to a table in one commit.

    Parameters
    ----------
    data : Table, RecordBatch, RecordBatchReader, iterable of RecordBatch, DataFrame, ...
        The rows. Also: a `Dataset`, a dataset or scanner of pyarrow, a DataFrame of pandas or
        polars, any other object with ``__arrow_c_stream__``, a mapping of names to values, or a
        list of mappings.
    uri : str or path
        A path, or a URI of any scheme that fsspec knows.
    schema : pa.Schema, optional
        Schema of an iterable; by default the schema of its first batch. Needed if the iterable may
        be empty. A text in this place is the mode.
    mode : str
        ``create`` (the table must not exist), ``append`` or ``overwrite`` (both create a missing
        table).

    Returns
    -------
    Dataset
        The version that was committed.

    Raises
    ------
    TableExistsError
        The mode is ``create`` and the table exists.
    SchemaMismatchError
        The schema of the data does not fit the table.
    CommitConflictError
        Another client committed an incompatible change.
    InvalidInputError, InvalidOptionError, UnsupportedTypeError, StorageError

    Examples
    --------
    >>> dataset = lance_spark.write_dataset(pa.table({"id": [1, 2]}), "/data/t.lance")
    >>> dataset = lance_spark.write_dataset(pa.table({"id": [3]}), "/data/t.lance", mode="append")
    """
    # Imported here: readers need none of these modules.
    from lance_spark.dataset.writing import write_rows

    if isinstance(schema, str):
        mode, schema = cast("Mode", schema), None
    places = checked(PlaceKeywords, of_group(PlaceKeywords, keywords))
    options = with_lock(keywords.get("storage_options"), places["commit_lock"])
    options = with_base_params(
        with_store(options, places["manifest_store"]), places["base_store_params"]
    )
    is_new = mode == "create"
    client = places["namespace_client"]
    with table_entry(uri, client, places["table_id"], options, is_new=is_new) as entry:
        given = of_group(InsertKeywords, keywords)
        given["storage_options"] = entry.storage_options
        table = write_rows(data, entry.location, mode, schema, **given)
        return Dataset(table, entry.storage_options)
