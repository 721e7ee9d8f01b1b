"""Parser of the options for partial overwrites, schema merging and repeated writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.spark.options.options import WriteOptions
from lance_spark.spark.options.values import choice, column_names, flag, name_of, timezone_of, whole
from lance_spark.spark.pushdown.request import parse_settings
from lance_spark.table.commit.idempotency import WriteToken, write_of

if TYPE_CHECKING:
    from lance_spark.scan.predicates.sql import SqlSettings


@dataclass(frozen=True, slots=True)
class OverwriteOptions:
    """How a write treats the existing rows and columns.

    Attributes
    ----------
    merge_schema : bool
        Whether an append can add columns.
    once : WriteToken or None
        Identifies the write, which is skipped if it was committed before.
    replace_where : str or None
        An overwrite replaces only the rows that meet this Spark SQL predicate.
    partition_by : tuple of str
        An overwrite replaces only the rows whose values of these columns are in the DataFrame.
        Empty: not a dynamic partition overwrite.
    timezone : str or None
        Time zone of timestamps in `replace_where` without one.
    settings : SqlSettings or None
        Session settings, if the optimizer rule has sent them.
    """

    merge_schema: bool = False
    once: WriteToken | None = None
    replace_where: str | None = None
    partition_by: tuple[str, ...] = ()
    timezone: str | None = None
    settings: SqlSettings | None = None

    @property
    def replaces_part(self) -> bool:
        """Whether an overwrite replaces only some rows."""
        return self.replace_where is not None or bool(self.partition_by)

    @classmethod
    def parse(cls, options: WriteOptions, overwrite: bool) -> OverwriteOptions:
        """Parse the options of a write.

        Parameters
        ----------
        options : WriteOptions
        overwrite : bool
            True for the mode overwrite, False for append.

        Raises
        ------
        InvalidOptionError
            A value is not valid, or two options contradict each other or the mode.
        """
        rules = options.rules
        where = name_of("replace_where", rules)
        mode = choice("partition_overwrite_mode", rules, ("static", "dynamic"))
        by = column_names("partitionBy", rules.get("partition_by")) or ()
        dynamic = overwrite and mode == "dynamic"
        merge = flag("merge_schema", rules)
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
        if dynamic and not by:
            raise InvalidOptionError(
                "option partitionOverwriteMode=dynamic needs the option partitionBy with the "
                "partition columns. Spark refuses the method .partitionBy()"
            )
        if merge and overwrite:
            raise InvalidOptionError(
                "option mergeSchema applies to appends only: a full overwrite uses the columns of "
                "the DataFrame, and a partial overwrite keeps the columns of the table"
            )
        return cls(
            merge_schema=merge,
            once=_once(rules),
            replace_where=where,
            partition_by=by if dynamic else (),
            timezone=timezone_of(rules),
            settings=_settings(rules),
        )


def _settings(rules: Mapping[str, str]) -> SqlSettings | None:
    text = rules.get("session_settings")
    if text is None:
        return None
    import json

    try:
        settings = json.loads(text)
    except (ValueError, RecursionError):
        settings = None
    return parse_settings(settings)


def _once(rules: Mapping[str, str]) -> WriteToken | None:
    app, version = name_of("txn_app_id", rules), whole("txn_version", rules, least=0)
    try:
        return write_of(app, version)
    except InvalidInputError as error:
        raise InvalidOptionError(f"options {error}") from None
