"""Options about what a write means for the rows and columns that there are: parsed and checked
here, once.
"""

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
    """What a write means for the rows and columns that there are.

    Attributes
    ----------
    merge_schema : bool
        Whether an append may bring new columns.
    once : Once or None
        The write is left out if it was made before.
    replace_where : str or None
        An overwrite replaces the rows that meet this predicate in Spark's SQL, and no others.
    partition_by : tuple of str
        An overwrite replaces the rows that have the same values of these columns as its own rows;
        all rows, if there are none.
    timezone : str or None
        Of timestamps in `replace_where` that name none.
    settings : SqlSettings or None
        Of the session, if the optimizer rule has told them.
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
        """Parse what the options of a write say.

        Parameters
        ----------
        options : WriteOptions
        overwrite : bool
            Whether the mode is overwrite, and not append.

        Raises
        ------
        InvalidOptionError
            A value cannot be used, or two options contradict one another or the mode.
        """
        given = options.rules
        where = name_of("replace_where", given)
        mode = choice("partition_overwrite_mode", given, ("static", "dynamic"))
        by = column_names("partitionBy", given.get("partition_by")) or ()
        dynamic = overwrite and mode == "dynamic"
        merge = flag("merge_schema", given)
        if where is not None and not overwrite:
            raise InvalidOptionError(
                'option replaceWhere says what an overwrite replaces: use .mode("overwrite"), or leave it out'
            )
        if where is not None and dynamic:
            raise InvalidOptionError(
                "options replaceWhere and partitionOverwriteMode=dynamic exclude one another: give "
                "one"
            )
        if dynamic and not by:
            raise InvalidOptionError(
                "option partitionOverwriteMode=dynamic needs option partitionBy: the columns whose "
                "values say what is replaced. "
                "The method .partitionBy() is refused by Spark"
            )
        if merge and overwrite:
            raise InvalidOptionError(
                "option mergeSchema is for appends: an overwrite of all rows takes the DataFrame's "
                "columns as they are, one of a "
                "part keeps the table's"
            )
        return cls(
            merge_schema=merge,
            once=_once(given),
            replace_where=where,
            partition_by=by if dynamic else (),
            timezone=timezone_of(given),
            settings=_settings(given),
        )


def _settings(given: Mapping[str, str]) -> SqlSettings | None:
    text = given.get("session_settings")
    if text is None:
        return None
    import json

    try:
        settings = json.loads(text)
    except (ValueError, RecursionError):
        settings = None
    return parse_settings(settings)


def _once(given: Mapping[str, str]) -> WriteToken | None:
    app, version = name_of("txn_app_id", given), whole("txn_version", given, least=0)
    try:
        return write_of(app, version)
    except InvalidInputError as error:
        raise InvalidOptionError(f"options {error}") from None
