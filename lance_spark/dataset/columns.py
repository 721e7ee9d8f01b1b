"""Methods of `Dataset` that change columns, metadata and base paths, and `restore`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

import pyarrow as pa

from lance_spark.arguments import takes_keywords
from lance_spark.dataset.history import HistoryMethods
from lance_spark.progress import reports_progress
from lance_spark.table.commit.options import (
    CommitKeywords,
    CommitOptions,
    MessageRetryKeywords,
    RetryKeywords,
    RetryProgressKeywords,
)

if TYPE_CHECKING:
    from lance_spark.table.bases import BaseLike

Values = Mapping[str, str | None]


class ColumnMethods(HistoryMethods):
    """Methods of `Dataset` that change columns and metadata.

    Each method commits a new version and returns it.
    """

    def config(self) -> dict[str, str]:
        """Return the configuration of the table."""
        return self._table.manifest.config

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the table."""
        return self._table.manifest.table_metadata

    @property
    def schema_metadata(self) -> dict[str, str]:
        """Metadata of the schema."""
        metadata = self._table.manifest.schema_metadata
        return {key: value.decode(errors="replace") for key, value in metadata.items()}

    @takes_keywords(renamed={"reader_schema": "output_schema"})
    @reports_progress
    def add_columns(
        self,
        transforms: Any,
        read_columns: Sequence[str] | None = None,
        output_schema: pa.Schema | None = None,
        batch_size: int | None = None,
        **keywords: Unpack[RetryProgressKeywords],
    ) -> Self:
        """Add columns to the existing rows, in one commit.

        Parameters
        ----------
        transforms : mapping, callable, pa.Field, list of pa.Field, or pa.Schema
            The new columns, in one of these forms:

            - a mapping of names to constants (Python values or `pa.Scalar`) or to functions, which
              receive a record batch and return one value per row;
            - a function that receives a record batch and returns a record batch with all new
              columns, or a DataFrame of pandas; `batch_udf` gives it a checkpoint;
            - fields or a schema: columns with only nulls, for which no file is written. For an
              existing struct, its missing children are added.
        read_columns : sequence of str, optional
            The columns that functions receive; all by default. Blobs are passed as bytes. Deleted
            rows are not passed.
        output_schema : pa.Schema, optional
            Types of the new columns. By default they are nullable and have the type of their
            values; the first rows decide for functions.
        batch_size : int, optional
            Maximum number of rows of a batch; 65,536 by default.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            A column exists already, or the values do not fit the rows or types.
        UnsupportedFeatureError, UnsupportedTypeError
            This release cannot write a feature of the table, or a type.
        CommitConflictError, CorruptFileError, CorruptTableError, StorageError

        Examples
        --------
        >>> dataset = dataset.add_columns({"source": "import", "n": lambda batch: batch["id"]})
        """
        from lance_spark.mutations.columns.add import add_columns

        options = CommitOptions.of(**keywords)
        table = add_columns(
            self._table, transforms, read_columns, output_schema, batch_size, options=options
        )
        return self._committed(table)

    def drop_columns(
        self,
        columns: Sequence[str],
        **keywords: Unpack[RetryKeywords],
    ) -> Self:
        """Drop columns and the indexes on them, in one commit. Data files are not rewritten.

        Parameters
        ----------
        columns : sequence of str
            Names, or dotted paths of children of structs. A struct is dropped with its last child.
            An empty sequence commits a version with the same columns, as in pylance.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            A column does not exist, or no column would remain.
        UnsupportedFeatureError, CommitConflictError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.columns.drop import drop_columns

        options = CommitOptions.of(**keywords)
        return self._committed(drop_columns(self._table, columns, options))

    @reports_progress
    def alter_columns(
        self,
        *alterations: Mapping[str, Any],
        **keywords: Unpack[RetryProgressKeywords],
    ) -> Self:
        """Rename columns, change their types or nullability, in one commit.

        Parameters
        ----------
        *alterations : mapping
            ``path`` (name of a column, or dotted path of a child), and one or more of ``name``,
            ``nullable`` and ``data_type``. A new name or nullability changes only the schema. A new
            type must belong to the same family (integers, floats, strings, ...); the values of the
            column are rewritten.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            A column does not exist, a column that becomes non-nullable has nulls, a value does not
            fit the new type, or a column with a new type has an index.
        UnsupportedFeatureError, CommitConflictError, CorruptFileError, CorruptTableError,
        StorageError

        Examples
        --------
        >>> alterations = {"path": "x", "name": "y"}, {"path": "n", "data_type": pa.int64()}
        >>> dataset = dataset.alter_columns(*alterations)
        """
        from lance_spark.mutations.columns.alter import alter_columns

        options = CommitOptions.of(**keywords)
        return self._committed(alter_columns(self._table, alterations, options))

    def update_config(
        self,
        values: Values,
        *,
        replace: bool = False,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Set keys of the table's configuration.

        Parameters
        ----------
        values : mapping of str to str or None
            The new values; None deletes a key. An empty mapping commits a version with the same
            configuration, as in pylance.
        replace : bool
            Whether to delete all other keys.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        CommitConflictError
            Another client set or deleted the same keys.
        InvalidInputError, UnsupportedFeatureError, CorruptTableError, StorageError
        """
        options = CommitOptions.of(**keywords)
        return self._update(options, config=values, replace=replace)

    def delete_config_keys(
        self,
        keys: Sequence[str],
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Delete keys of the table's configuration; see `update_config`."""
        values: Values = dict.fromkeys(keys)
        options = CommitOptions.of(**keywords)
        return self._update(options, config=values)

    def update_metadata(
        self,
        values: Values,
        *,
        replace: bool = False,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Set keys of the table's metadata; see `update_config`."""
        options = CommitOptions.of(**keywords)
        return self._update(options, table_metadata=values, replace=replace)

    def update_schema_metadata(
        self,
        values: Values,
        *,
        replace: bool = False,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Set keys of the schema's metadata; see `update_config`.

        Concurrent changes of the schema's metadata are conflicts, even if their keys differ.
        """
        options = CommitOptions.of(**keywords)
        return self._update(options, schema_metadata=values, replace=replace)

    def replace_schema_metadata(self, new_metadata: Mapping[str, str]) -> Self:
        """Replace the metadata of the schema; see `update_schema_metadata`."""
        return self.update_schema_metadata(new_metadata, replace=True)

    def update_field_metadata(
        self,
        field_updates: Mapping[str, Values],
        *,
        replace: bool = False,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Set keys of the metadata of columns.

        Parameters
        ----------
        field_updates : mapping of str to mapping of str to str or None
            The new values by the name of a column, or the dotted path of a child of a struct; None
            deletes a key.
        replace : bool
            Whether to delete all other keys of these columns.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        CommitConflictError
            Another client changed the metadata of the same columns.
        InvalidInputError
            A column does not exist.
        UnsupportedFeatureError, CorruptTableError, StorageError
        """
        options = CommitOptions.of(**keywords)
        return self._update(options, field_metadata=field_updates, replace=replace)

    def replace_field_metadata(self, field_name: str, new_metadata: Mapping[str, str]) -> Self:
        """Replace the metadata of a column; see `update_field_metadata`."""
        return self.update_field_metadata({field_name: new_metadata}, replace=True)

    def add_bases(
        self,
        new_bases: Iterable[BaseLike],
        transaction_properties: Mapping[str, str] | None = None,
        **keywords: Unpack[MessageRetryKeywords],
    ) -> Self:
        """Add base paths: folders outside the table's root for files of the table.

        Parameters
        ----------
        new_bases : iterable of BasePath
            pylance's `DatasetBasePath` is accepted as well. A base path without an id, or with the
            id 0, gets a new id. An empty iterable commits a version with the same base paths, as in
            pylance.
        transaction_properties : mapping of str to str, optional
            Stored in the transaction.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            The table has a base path with the same name, path or id.
        CommitConflictError
            Another client added such a base path.
        UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.metadata_updates import add_bases

        options = CommitOptions.of(transaction_properties=transaction_properties, **keywords)
        return self._committed(add_bases(self._table, new_bases, options))

    def repoint_base(
        self,
        base: int | str,
        path: str,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Change the path of a base path, after its files were copied to the new path.

        Only the new version and its successors on this branch use the new path: older versions and
        other branches keep the old one. No client should write to the base path meanwhile: pylance
        does not notice that its new files belong to the new path.

        Parameters
        ----------
        base : int or str
            Id or name of the base path.
        path : str
            The new path or URI. Its store uses the options given by `base_store_params` or
            ``base_<id>.<name>`` when the table was opened, or else the options of the table.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            The base path does not exist, or another base path has the new path.
        MissingFileError
            A data file, deletion file or index of this version does not exist at the new path, or a
            data file has another size.
        CommitConflictError
            Another client changed base paths, or changed the table repeatedly.
        UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.metadata_updates import repoint_base

        options = CommitOptions.of(**keywords)
        return self._committed(repoint_base(self._table, base, path, options))

    def restore(
        self,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Commit the content of this version as the newest version, in place of all later changes.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        VersionNotFoundError
            A cleanup removed this version or is removing it.
        UnsupportedFeatureError, CommitConflictError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.metadata_updates import restore

        options = CommitOptions.of(**keywords)
        return self._committed(restore(self._table, options))

    def _update(self, options: CommitOptions, **values: Any) -> Self:
        from lance_spark.mutations.metadata_updates import update_config

        return self._committed(update_config(self._table, **values, options=options))
