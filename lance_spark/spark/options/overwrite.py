"""The options of partial overwrites, schema merging, and writes that are made once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.spark.options import values
from lance_spark.spark.options.declared import DYNAMIC, OverwriteFields
from lance_spark.spark.options.values import parsed
from lance_spark.spark.options.write import WriteOptions
from lance_spark.table.commit.options import WriteToken

if TYPE_CHECKING:
    from lance_spark.predicates.sql import SqlSettings
    from lance_spark.spark.pushdown.request import Version
    from lance_spark.spark.write.new_table import NewTable


@dataclass(frozen=True, slots=True)
class PartitionOverwrite:
    """An overwrite that replaces the rows whose values of some columns occur in the new rows.

    - `columns`: The columns that the write names. Empty for those that the property of the table
      names.
    - `is_required`: Whether the write asks for partitions itself: without columns it is refused.
      Otherwise the session asks for it, which means the whole table if nothing names columns.
    - `without_null`: Columns of which null equals no value.
    """

    columns: tuple[str, ...] = ()
    is_required: bool = True
    without_null: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, given: OverwriteFields) -> PartitionOverwrite | None:
        """Return the partitions of an overwrite; None if it replaces all rows, or by a condition.

        Raises InvalidOptionError.
        """
        has_condition = given.replace_where is not None
        mode, session = given.partition_overwrite_mode, given.session_overwrite_mode
        by_name, named, pairs = given.replaces, given.partition_by, given.replace_by
        conditions = tuple(given.static_partitions or {})
        if has_condition and (mode == DYNAMIC or pairs):
            raise InvalidOptionError(
                "options replaceWhere and partitionOverwriteMode=dynamic exclude each other: set "
                "only one"
            )
        if has_condition:
            return None
        if pairs:
            strict = frozenset(column for column, nulls_match in pairs if not nulls_match)
            return cls(tuple(column for column, _ in pairs), without_null=strict)
        if by_name == "where":
            # INSERT OVERWRITE ... PARTITION has the condition, if the session's mode is static.
            if mode != DYNAMIC:
                return None
            if not conditions:
                raise InvalidOptionError(
                    "a condition of the rows to replace and partitionOverwriteMode=dynamic exclude "
                    "each other: remove one of them"
                )
        if foreign := [
            name for name in conditions if named and name.lower() not in map(str.lower, named)
        ]:
            raise InvalidOptionError(
                f"option partitionBy does not name {', '.join(foreign)}, to which the clause "
                "PARTITION gives a value: name all columns of the partitions"
            )
        if mode == "static":
            return None
        if mode == DYNAMIC:
            return cls(named)
        if by_name == "partitions":
            return cls(named, is_required=session != DYNAMIC)
        if by_name is not None:
            return None
        if session is None and named:
            raise InvalidOptionError(
                "option partitionBy: the overwrite does not know whether the session replaces all "
                "rows or those of the partitions. Set the option partitionOverwriteMode to dynamic "
                "or static, or call lance_spark.enable(spark)"
            )
        return cls(named, is_required=False) if session == DYNAMIC else None


@dataclass(frozen=True, slots=True)
class OverwriteOptions:
    """The effect of a write on the existing rows and columns of a table.

    - `merge_schema`: Whether an append may bring new columns.
    - `write_token`: Identifies the write; it is skipped if the table's history has it already.
    - `replace_where`: Predicate in Spark's SQL: an overwrite replaces the rows that meet it, and no
      others.
    - `partitions`: An overwrite replaces the rows whose values of some columns occur in the new
      rows. None to replace all rows.
    - `timezone`: Time zone of the timestamps in `replace_where` that have none.
    - `settings`: Settings of the session, if the optimizer rule has sent them.
    - `replaces_rows`: Whether an overwrite of all rows keeps the columns of the table.
    - `is_by_name`: Whether the table has a name, and keeps its columns.
    - `where_forms`: An overwrite replaces the rows that meet these filters (`filter_trees`), and no
      others.
    - `given`: The filters of the columns to which the clause PARTITION gives values, by their
      names.
    - `new_table`: The table that the write creates or replaces for a statement.
    - `must_create`: Whether the write fails if the table exists at the time of the commit.
    - `must_exist`: Whether the write fails if the table does not exist when the write is planned.
    - `rows_read`: The version of the table that the query of an overwrite has read. The write fails
      if another client has changed rows or columns since this version.
    - `query_metadata`: The metadata of columns of the query, as JSON texts, before Spark's
      optimizer.
    - `opened`: By which the version is known that the step before an append has read
      (`write.opened`).
    """

    merge_schema: bool = False
    write_token: WriteToken | None = None
    replace_where: str | None = None
    partitions: PartitionOverwrite | None = None
    timezone: str | None = None
    settings: SqlSettings | None = None
    replaces_rows: bool = False
    is_by_name: bool = False
    where_forms: tuple[dict[str, Any], ...] = ()
    given: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    new_table: NewTable | None = None
    must_create: bool = False
    must_exist: bool = False
    rows_read: Version | None = None
    query_metadata: Mapping[str, str] = field(default_factory=dict)
    opened: str | None = None

    @property
    def replaces_part(self) -> bool:
        """Whether an overwrite replaces some rows only."""
        return (
            self.replace_where is not None or self.partitions is not None or bool(self.where_forms)
        )

    def of_table(self, property_columns: tuple[str, ...]) -> OverwriteOptions:
        """Return the effect on a table, in which the columns of partitions are known.

        - `property_columns`: Columns that the property of the table names.

        Raises InvalidOptionError: the write asks for partitions, and nothing names their columns.
        """
        partitions = self.partitions
        if partitions is None:
            return self
        columns = partitions.columns or property_columns
        given = set(map(str.lower, self.given))
        if columns and given >= set(map(str.lower, columns)) and all(self.given.values()):
            # PARTITION names one partition, which is replaced even if there are no new rows.
            return replace(self, partitions=None, where_forms=tuple(self.given.values()))
        if columns:
            return replace(self, partitions=replace(partitions, columns=columns))
        if partitions.is_required:
            raise InvalidOptionError(
                "an overwrite of partitions needs the option partitionBy, or the table property "
                "partitionBy: the columns whose values choose the rows to replace. Lance tables "
                "have no partitions, and the method .partitionBy() is refused"
            )
        return replace(self, partitions=None, replaces_rows=self.is_by_name)

    @classmethod
    def parse(cls, options: WriteOptions, overwrite: bool) -> OverwriteOptions:
        """Parse the options of a write.

        - `overwrite`: Whether the mode is overwrite, and not append.

        Raises InvalidOptionError: a value is invalid, or two options exclude each other or do not
        fit the mode.
        """
        fields = OverwriteFields(**parsed(OverwriteFields, options.overwrite))
        zone = options.overwrite.get("timezone")
        condition, replaces = fields.replace_where, fields.replaces
        partitions = PartitionOverwrite.parse(fields) if overwrite else None
        where_forms = tuple(fields.replace_where_forms)
        given = dict(fields.static_partitions or {})
        if replaces == "partitions" and condition is None and partitions is None:
            # The option says static, and the clause PARTITION which rows are meant.
            where_forms = tuple(given.values())
            if not all(where_forms):
                partitions, where_forms = PartitionOverwrite(tuple(given)), ()
        is_partial = condition is not None or (partitions is not None and partitions.is_required)
        if is_partial and fields.overwrite_schema:
            raise InvalidOptionError(
                "option overwriteSchema applies to overwrites of all rows: a partial overwrite "
                "keeps the table's columns; remove the option"
            )
        keeps_columns = overwrite and fields.overwrite_schema is False
        if condition is not None and not overwrite:
            raise InvalidOptionError(
                'option replaceWhere applies to overwrites only: use .mode("overwrite"), or '
                "remove the option"
            )
        if fields.merge_schema and overwrite:
            raise InvalidOptionError(
                "option mergeSchema applies to appends only: an overwrite of all rows takes the "
                "DataFrame's columns, and a partial overwrite keeps the table's"
            )
        return cls(
            merge_schema=fields.merge_schema,
            write_token=_write_token(fields),
            replace_where=condition,
            partitions=partitions,
            timezone=None if zone is None else values.zone("timezone", zone),
            settings=_settings(fields.session_settings),
            replaces_rows=(replaces in ("all", "partitions") or keeps_columns)
            and condition is None
            and not partitions
            and not where_forms,
            is_by_name=replaces is not None,
            where_forms=where_forms,
            given=given,
            new_table=_new_table(fields.new_table, fields.must_create),
            must_create=fields.must_create,
            must_exist=fields.must_exist,
            rows_read=_version(fields.rows_read),
            query_metadata=fields.query_metadata or {},
            opened=fields.opened_version,
        )


def _version(text: str | None) -> Version | None:
    if text is None:
        return None
    from lance_spark.spark.pushdown.request import Version

    return Version.parse(text)


def _new_table(text: str | None, must_create: bool) -> NewTable | None:
    if text is None:
        return None
    from lance_spark.spark.write.new_table import NewTable

    return NewTable.parse(text, must_create)


def _settings(session: Any) -> SqlSettings | None:
    if session is None:
        return None
    from lance_spark.spark.pushdown.request import parse_settings

    return parse_settings(session)


def _write_token(fields: OverwriteFields) -> WriteToken | None:
    try:
        return WriteToken.of_app(fields.txn_app_id, fields.txn_version)
    except InvalidInputError as error:
        raise InvalidOptionError(f"options {error}") from None
