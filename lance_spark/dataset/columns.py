"""A table that can be changed: its columns, configuration and metadata; older versions are brought back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lance_spark.dataset.history import HistoryMethods
from lance_spark.table.commit.options import CommitOptions

if TYPE_CHECKING:
    from lance_spark.table.bases import BaseLike

Values = Mapping[str, str | None]


class ColumnMethods(HistoryMethods):
    """One version of a table, and ways to make another.

    Each method commits, and returns the version that was committed; the object itself stays as it is.

    All take `commit_message` and `transaction_properties`, which are kept with the transaction, and the number of times that the
    commit is started again after other writers were faster, `max_retries`. Those that look at the columns are planned anew on the
    newest version, up to `conflict_retries` times, if others commit what they do not fit.
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
        found = self._table.manifest.schema_metadata
        return {key: value.decode(errors="replace") for key, value in found.items()}

    def add_columns(
        self,
        transforms: Any,
        read_columns: Sequence[str] | None = None,
        output_schema: pa.Schema | None = None,
        batch_size: int | None = None,
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = 10,
        max_retries: int = 20,
    ) -> Self:
        """Add columns to the rows that there are.

        Parameters
        ----------
        transforms : mapping, callable, pa.Field, list of pa.Field, or pa.Schema
            A mapping of names to constants (Python values or `pa.Scalar`) or functions, which get a record batch of rows and return
            as many values. A function on its own returns a record batch with all new columns. Fields, or a schema, are columns
            without values yet: null everywhere, without any new file; a struct that is there gets the children it lacks.
        read_columns : sequence of str, optional
            The columns that functions get; all by default, blobs as bytes. Deleted rows are left out.
        output_schema : pa.Schema, optional
            The new columns. By default they can be null, and have the type of their values; those of functions are told by
            the first rows.
        batch_size : int, optional
            Rows that functions get at once, at most; 65,536 by default.
        commit_message, transaction_properties, conflict_retries, max_retries
            See the class. Values are computed again only for what changed meanwhile.

        Raises
        ------
        InvalidInputError
            There is such a column, or the values are not what they should be.
        UnsupportedFeatureError, UnsupportedTypeError
            The table, or a type, needs more than this release writes.
        CommitConflictError, CorruptFileError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.columns.add import add_columns

        options = CommitOptions.of(
            commit_message, transaction_properties, max_retries, conflict_retries
        )
        table = add_columns(
            self._table,
            transforms,
            read_columns,
            output_schema,
            batch_size,
            options=options,
        )
        return self._committed(table)

    def drop_columns(
        self,
        columns: Sequence[str],
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = 10,
        max_retries: int = 20,
    ) -> Self:
        """Drop columns, and the indexes on them. Data files are not rewritten.

        Parameters
        ----------
        columns : sequence of str
            Names, or dotted paths of children of structs. A struct goes with the last of its children.
        commit_message, transaction_properties, conflict_retries, max_retries
            See the class.

        Raises
        ------
        InvalidInputError
            There is no such column, or none would be left.
        UnsupportedFeatureError, CommitConflictError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.columns.alter import drop_columns

        options = CommitOptions.of(
            commit_message, transaction_properties, max_retries, conflict_retries
        )
        return self._committed(drop_columns(self._table, columns, options))

    def alter_columns(
        self,
        *alterations: Mapping[str, Any],
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = 10,
        max_retries: int = 20,
    ) -> Self:
        """Rename columns, cast them to other types, or let them be null or not, in one commit.

        Parameters
        ----------
        *alterations : mapping
            ``path`` (name, or dotted path of a child), and one or more of ``name``, ``nullable`` and ``data_type``. Renaming and
            nullability change the schema alone. A column is cast to a type of the same kind: integers to integers, floats to floats,
            strings to strings, and so on; its values are written anew.
        commit_message, transaction_properties, conflict_retries, max_retries
            See the class.

        Raises
        ------
        InvalidInputError
            There is no such column, it has nulls, a value does not fit the type, or an index is made of its values.
        UnsupportedFeatureError, CommitConflictError, CorruptFileError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.columns.alter import alter_columns

        options = CommitOptions.of(
            commit_message, transaction_properties, max_retries, conflict_retries
        )
        return self._committed(alter_columns(self._table, alterations, options))

    def update_config(
        self,
        values: Values,
        *,
        replace: bool = False,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        max_retries: int = 20,
    ) -> Self:
        """Set configuration of the table.

        Parameters
        ----------
        values : mapping of str to str or None
            None deletes a key.
        replace : bool
            Whether keys that are not named go.
        commit_message, transaction_properties, max_retries
            See the class.

        Raises
        ------
        CommitConflictError
            Others set or deleted the same keys.
        InvalidInputError, UnsupportedFeatureError, CorruptTableError, StorageError
        """
        options = CommitOptions.of(commit_message, transaction_properties, max_retries)
        return self._update(options, config=values, replace=replace)

    def delete_config_keys(
        self,
        keys: Sequence[str],
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        max_retries: int = 20,
    ) -> Self:
        """Delete keys of the table's configuration; see `update_config`."""
        values: Values = dict.fromkeys(keys)
        options = CommitOptions.of(commit_message, transaction_properties, max_retries)
        return self._update(options, config=values)

    def update_metadata(
        self,
        values: Values,
        *,
        replace: bool = False,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        max_retries: int = 20,
    ) -> Self:
        """Set metadata of the table; see `update_config`."""
        options = CommitOptions.of(commit_message, transaction_properties, max_retries)
        return self._update(options, table_metadata=values, replace=replace)

    def update_schema_metadata(
        self,
        values: Values,
        *,
        replace: bool = False,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        max_retries: int = 20,
    ) -> Self:
        """Set metadata of the schema; see `update_config`. Two such changes at the same time contradict one another."""
        options = CommitOptions.of(commit_message, transaction_properties, max_retries)
        return self._update(options, schema_metadata=values, replace=replace)

    def replace_schema_metadata(self, new_metadata: Mapping[str, str]) -> Self:
        """Set the metadata of the schema in place of what there is; see `update_schema_metadata`."""
        return self.update_schema_metadata(new_metadata, replace=True)

    def update_field_metadata(
        self,
        field_updates: Mapping[str, Values],
        *,
        replace: bool = False,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        max_retries: int = 20,
    ) -> Self:
        """Set metadata of columns.

        Parameters
        ----------
        field_updates : mapping of str to mapping of str to str or None
            By name of a column, or dotted path of a child of a struct.
        replace : bool
            Whether keys of these columns that are not named go.
        commit_message, transaction_properties, max_retries
            See the class.

        Raises
        ------
        CommitConflictError
            Others changed the metadata of the same columns.
        InvalidInputError
            There is no such column.
        UnsupportedFeatureError, CorruptTableError, StorageError
        """
        options = CommitOptions.of(commit_message, transaction_properties, max_retries)
        return self._update(options, field_metadata=field_updates, replace=replace)

    def replace_field_metadata(self, field_name: str, new_metadata: Mapping[str, str]) -> Self:
        """Set the metadata of a column in place of what there is; see `update_field_metadata`."""
        return self.update_field_metadata({field_name: new_metadata}, replace=True)

    def add_bases(
        self,
        new_bases: Iterable[BaseLike],
        transaction_properties: Mapping[str, str] | None = None,
        *,
        commit_message: str | None = None,
        max_retries: int = 20,
    ) -> Self:
        """Add base paths: other places where files of the table may lie.

        Parameters
        ----------
        new_bases : iterable of BasePath
            pylance's `DatasetBasePath` does too. Those without an id, or of the id 0, are given one.
        transaction_properties, commit_message, max_retries
            See the class.

        Raises
        ------
        InvalidInputError
            The table has one of that name, path or id.
        CommitConflictError
            Others added such a one meanwhile.
        UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.metadata_updates import add_bases

        options = CommitOptions.of(commit_message, transaction_properties, max_retries)
        return self._committed(add_bases(self._table, new_bases, options))

    def repoint_base(
        self,
        base: int | str,
        path: str,
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        max_retries: int = 20,
    ) -> Self:
        """Give a base path another path, after its files were copied there.

        Only the new version of this branch looks there: older versions and other branches keep the path that they have. Nobody should
        write to the base path meanwhile: pylance does not notice that files which it has just written belong elsewhere now.

        Parameters
        ----------
        base : int or str
            Id or name of the base path.
        path : str
            The new path or URI. Its store has the settings that `base_store_params` or ``base_<id>.<name>`` gave when the table was
            opened, or those of the table.
        commit_message, transaction_properties, max_retries
            See the class.

        Raises
        ------
        InvalidInputError
            There is no such base path, or another one has that path.
        MissingFileError
            A data file, deletion file or index of this version is not there, or a data file has another size.
        CommitConflictError
            Others changed base paths, or the table again and again.
        UnsupportedFeatureError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.metadata_updates import repoint_base

        options = CommitOptions.of(commit_message, transaction_properties, max_retries)
        return self._committed(repoint_base(self._table, base, path, options))

    def restore(
        self,
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        max_retries: int = 20,
    ) -> Self:
        """Make this version the newest again, whatever was committed since.

        Raises
        ------
        VersionNotFoundError
            It has been cleaned up.
        UnsupportedFeatureError, CommitConflictError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.metadata_updates import restore

        options = CommitOptions.of(commit_message, transaction_properties, max_retries)
        return self._committed(restore(self._table, options))

    def _update(self, options: CommitOptions, **values: Any) -> Self:
        from lance_spark.mutations.metadata_updates import update_config

        return self._committed(update_config(self._table, **values, options=options))
