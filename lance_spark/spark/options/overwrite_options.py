"""Options of partial overwrites, schema merging and writes that are made once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.spark.options.options import WriteOptions
from lance_spark.spark.options.values import (
    choice,
    column_names,
    flag,
    non_blank,
    parsed_json,
    timezone_of,
    whole_number,
)
from lance_spark.spark.pushdown.request import parse_settings
from lance_spark.table.commit.idempotency import WriteToken, write_of

if TYPE_CHECKING:
    from lance_spark.scan.predicates.sql import SqlSettings


@dataclass(frozen=True, slots=True)
class OverwriteOptions:
    """The effect of a write on the existing rows and columns of a table.

    Attributes
    ----------
    merge_schema : bool
        Whether an append may bring new columns.
    once : WriteToken or None
        Identifies the write; it is skipped if the table's history has it already.
    replace_where : str or None
        Predicate in Spark's SQL: an overwrite replaces the rows that meet it, and no others.
    partition_by : tuple of str
        An overwrite replaces the rows whose values of these columns occur in the new rows. Empty to
        replace all rows.
    timezone : str or None
        Time zone of the timestamps in `replace_where` that have none.
    settings : SqlSettings or None
        Settings of the session, if the optimizer rule has sent them.
    """

    merge_schema: bool = False
    once: WriteToken | None = None
    replace_where: str | None = None
    partition_by: tuple[str, ...] = ()
    timezone: str | None = None
    settings: SqlSettings | None = None

    @property
    def replaces_part(self) -> bool:
        """Whether an overwrite replaces some rows only."""
        return self.replace_where is not None or bool(self.partition_by)

    @classmethod
    def parse(cls, options: WriteOptions, overwrite: bool) -> OverwriteOptions:
        """Parse the options of a write.

        Parameters
        ----------
        overwrite : bool
            Whether the mode is overwrite, and not append.

        Raises
        ------
        InvalidOptionError
            A value is invalid, or two options exclude each other or do not fit the mode.
        """
        given = options.overwrite
        where = non_blank("replace_where", given)
        mode = choice("partition_overwrite_mode", given, ("static", "dynamic"))
        partition_by = column_names("partitionBy", given.get("partition_by")) or ()
        dynamic = overwrite and mode == "dynamic"
        merge = flag("merge_schema", given)
        if where is not None and not overwrite:
            raise InvalidOptionError(
                'option replaceWhere applies to overwrites only: use .mode("overwrite"), or '
                "remove the option"
            )
        if where is not None and dynamic:
            raise InvalidOptionError(
                "options replaceWhere and partitionOverwriteMode=dynamic exclude each other: set "
                "only one"
            )
        if dynamic and not partition_by:
            raise InvalidOptionError(
                "option partitionOverwriteMode=dynamic needs the option partitionBy: the columns "
                "whose values choose the rows to replace. Spark refuses the method .partitionBy()"
            )
        if merge and overwrite:
            raise InvalidOptionError(
                "option mergeSchema applies to appends only: an overwrite of all rows takes the "
                "DataFrame's columns, and a partial overwrite keeps the table's"
            )
        return cls(
            merge_schema=merge,
            once=_once(given),
            replace_where=where,
            partition_by=partition_by if dynamic else (),
            timezone=timezone_of(given),
            settings=_settings(given),
        )


def _settings(given: Mapping[str, str]) -> SqlSettings | None:
    text = given.get("session_settings")
    if text is None:
        return None
    return parse_settings(parsed_json(text))


def _once(given: Mapping[str, str]) -> WriteToken | None:
    app, version = non_blank("txn_app_id", given), whole_number("txn_version", given, minimum=0)
    try:
        return write_of(app, version)
    except InvalidInputError as error:
        raise InvalidOptionError(f"options {error}") from None
