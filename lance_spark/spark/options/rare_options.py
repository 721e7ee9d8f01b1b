"""Options that few reads and writes have: of change feeds and of streams that read; of partial
overwrites, schema merging and writes that are made once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lance_spark.errors import InvalidInputError, InvalidOptionError, naming
from lance_spark.spark.options.names import PARTITION_BY, SESSION_MODE
from lance_spark.spark.options.options import ReadOptions, WriteOptions
from lance_spark.spark.options.values import (
    choice,
    column_names,
    flag,
    moment,
    non_blank,
    parsed_json,
    timezone_of,
    whole_number,
)
from lance_spark.spark.pushdown.request import parse_settings
from lance_spark.storage.uri import parse_uri
from lance_spark.table.commit.idempotency import WriteToken, write_of

if TYPE_CHECKING:
    from lance_spark.scan.predicates.sql import SqlSettings
    from lance_spark.spark.pushdown.request import Version
    from lance_spark.spark.write.new_table import NewTable


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """The changes of a table that are read.

    Attributes
    ----------
    change_feed : bool
        True to read inserted, updated and deleted rows; False to read added rows only.
    starting_version, ending_version : int or None
        Both inclusive.
    starting_timestamp, ending_timestamp : datetime or None
        In UTC. Begin with the first version at this time or later, and end with the last version at
        this time or earlier.
    max_fragments, max_bytes : int or None
        Target for the fragments of a batch of a stream, and for the bytes of their files.
    skip_change_commits : bool
        Whether a stream skips versions that changed rows.
    """

    change_feed: bool = False
    starting_version: int | None = None
    ending_version: int | None = None
    starting_timestamp: datetime | None = None
    ending_timestamp: datetime | None = None
    max_fragments: int | None = None
    max_bytes: int | None = None
    skip_change_commits: bool = False

    @classmethod
    def parse(cls, options: ReadOptions) -> FeedOptions:
        """Parse the options of a read that are about changes.

        Raises
        ------
        InvalidOptionError
            A value is invalid, or two options exclude each other.
        """
        with naming(parse_uri(options.path).display):
            return cls._parse(options)

    @classmethod
    def _parse(cls, options: ReadOptions) -> FeedOptions:
        feed_options = options.feed
        for end in ("starting", "ending"):
            if f"{end}_version" in feed_options and f"{end}_timestamp" in feed_options:
                raise InvalidOptionError(
                    f"options {end}Version and {end}Timestamp exclude each other: set only one"
                )
        parsed = cls(
            change_feed=flag("read_change_feed", feed_options),
            starting_version=whole_number("starting_version", feed_options),
            ending_version=whole_number("ending_version", feed_options),
            starting_timestamp=moment(
                feed_options.get("starting_timestamp"), options.timezone, "startingTimestamp"
            ),
            ending_timestamp=moment(
                feed_options.get("ending_timestamp"), options.timezone, "endingTimestamp"
            ),
            max_fragments=whole_number("max_fragments_per_trigger", feed_options),
            max_bytes=whole_number("max_bytes_per_trigger", feed_options),
            skip_change_commits=flag("skip_change_commits", feed_options),
        )
        if parsed.change_feed and options.filter is not None:
            raise InvalidOptionError(
                "option filter does not apply to change feeds: use .where() on the DataFrame"
            )
        if parsed.change_feed and parsed.skip_change_commits:
            raise InvalidOptionError(
                "options readChangeFeed and skipChangeCommits exclude each other: a change feed "
                "contains all changes; remove one of them"
            )
        return parsed

    def of_batch(self, options: ReadOptions) -> FeedOptions:
        """Return the options, checked for a change feed that a batch query reads.

        Raises
        ------
        InvalidOptionError
        """
        if not self.change_feed:
            raise InvalidOptionError(
                f"option {next(iter(options.feed))} applies to change feeds and streams only: set "
                "readChangeFeed, or use spark.readStream"
            )
        _refuse_options_of_a_version(
            options, "use startingVersion and endingVersion to select changes"
        )
        if self.starting_version is None and self.starting_timestamp is None:
            raise InvalidOptionError(
                "a change feed needs the option startingVersion or startingTimestamp: the first "
                "version whose changes are read"
            )
        return self

    def of_stream(self, options: ReadOptions) -> FeedOptions:
        """Return the options, checked for a stream.

        Raises
        ------
        InvalidOptionError
        """
        _refuse_options_of_a_version(
            options, "a stream begins at startingVersion, or at the newest version, and goes on"
        )
        if self.ending_version is not None or self.ending_timestamp is not None:
            raise InvalidOptionError(
                "a stream has no end: remove endingVersion and endingTimestamp, or use "
                "trigger(availableNow=True)"
            )
        return self


def _refuse_options_of_a_version(options: ReadOptions, instead: str) -> None:
    """Refuse a version, options about the fragments of a version, and full-text queries."""
    for name in ("version", "tag", "timestamp"):
        if getattr(options, name) is not None:
            raise InvalidOptionError(f"option {name} selects one version; {instead}")
    for name, is_set in (
        ("fragment_ids", options.fragment_ids is not None),
        ("whole_fragments", options.whole_fragments),
        ("full_text_query", options.full_text_query is not None),
        ("nearest", options.nearest is not None),
        ("fresh", bool(options.fresh)),
    ):
        if is_set:
            raise InvalidOptionError(
                f"option {name} applies to reads of one version, not to streams and change feeds; "
                "remove it"
            )


@dataclass(frozen=True, slots=True)
class PartitionOverwrite:
    """An overwrite that replaces the rows whose values of some columns occur in the new rows.

    Attributes
    ----------
    columns : tuple of str
        The columns that the write names. Empty for those that the property of the table names.
    is_required : bool
        Whether the write asks for partitions itself: without columns it is refused. Otherwise the
        session asks for it, which means the whole table if nothing names columns.
    without_null : frozenset of str
        Columns of which null equals no value.
    """

    columns: tuple[str, ...] = ()
    is_required: bool = True
    without_null: frozenset[str] = frozenset()

    @classmethod
    def parse(
        cls, overwrite_options: Mapping[str, str], *, has_condition: bool
    ) -> PartitionOverwrite | None:
        """Parse the options of an overwrite; None if it replaces all rows, or by a condition.

        Parameters
        ----------
        has_condition : bool
            Whether the write has the option replaceWhere.

        Raises
        ------
        InvalidOptionError
        """
        by_name = overwrite_options.get("replaces")
        session = overwrite_options.get(SESSION_MODE)
        mode = choice("partition_overwrite_mode", overwrite_options, _MODES)
        named = column_names("partitionBy", overwrite_options.get(PARTITION_BY)) or ()
        given = tuple(given_conditions(overwrite_options))
        pairs = parsed_json(overwrite_options.get("replace_by", "[]"))
        if has_condition and (mode == _DYNAMIC or pairs):
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
            if mode != _DYNAMIC:
                return None
            if not given:
                raise InvalidOptionError(
                    "a condition of the rows to replace and partitionOverwriteMode=dynamic exclude "
                    "each other: remove one of them"
                )
        if foreign := [
            name for name in given if named and name.lower() not in map(str.lower, named)
        ]:
            raise InvalidOptionError(
                f"option partitionBy does not name {', '.join(foreign)}, to which the clause "
                "PARTITION gives a value: name all columns of the partitions"
            )
        if mode == "static":
            return None
        if mode == _DYNAMIC:
            return cls(named)
        if by_name == "partitions":
            return cls(named, is_required=session != _DYNAMIC)
        if by_name is not None:
            return None
        if session is None and named:
            raise InvalidOptionError(
                "option partitionBy: the overwrite does not know whether the session replaces all "
                "rows or those of the partitions. Set the option partitionOverwriteMode to dynamic "
                "or static, or call lance_spark.enable(spark)"
            )
        return cls(named, is_required=False) if session == _DYNAMIC else None


def given_conditions(overwrite_options: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the condition of each column that the clause PARTITION gives a value, by its name."""
    return dict(parsed_json(overwrite_options.get("static_partitions", "{}")))


#: Values of `partitionOverwriteMode`.
_DYNAMIC = "dynamic"
_MODES = ("static", _DYNAMIC)


@dataclass(frozen=True, slots=True)
class OverwriteOptions:
    """The effect of a write on the existing rows and columns of a table.

    Attributes
    ----------
    merge_schema : bool
        Whether an append may bring new columns.
    write_token : WriteToken or None
        Identifies the write; it is skipped if the table's history has it already.
    replace_where : str or None
        Predicate in Spark's SQL: an overwrite replaces the rows that meet it, and no others.
    partitions : PartitionOverwrite or None
        An overwrite replaces the rows whose values of some columns occur in the new rows. None to
        replace all rows.
    timezone : str or None
        Time zone of the timestamps in `replace_where` that have none.
    settings : SqlSettings or None
        Settings of the session, if the optimizer rule has sent them.
    replaces_rows : bool
        Whether an overwrite of all rows keeps the columns of the table.
    is_by_name : bool
        Whether the table has a name, and keeps its columns.
    where_forms : list of dict
        An overwrite replaces the rows that meet these filters (`filter_trees`), and no others.
    given : mapping of str to dict
        The filters of the columns to which the clause PARTITION gives values, by their names.
    new_table : NewTable or None
        The table that the write creates or replaces for a statement.
    must_create : bool
        Whether the write fails if the table exists at the time of the commit.
    must_exist : bool
        Whether the write fails if the table does not exist when the write is planned.
    rows_read : Version or None
        The version of the table that the query of an overwrite has read. The write fails if
        another client has changed rows or columns since this version.
    query_metadata : mapping of str to str
        The metadata of columns of the query, as JSON texts, before Spark's optimizer.
    opened : str or None
        By which the version is known that the step before an append has read (`write.opened`).
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

        Parameters
        ----------
        property_columns : tuple of str
            Columns that the property of the table names.

        Raises
        ------
        InvalidOptionError
            The write asks for partitions, and nothing names their columns.
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

        Parameters
        ----------
        overwrite : bool
            Whether the mode is overwrite, and not append.

        Raises
        ------
        InvalidOptionError
            A value is invalid, or two options exclude each other or do not fit the mode.
        """
        overwrite_options = options.overwrite
        condition = non_blank("replace_where", overwrite_options)
        replaces = overwrite_options.get("replaces")
        choice("partition_overwrite_mode", overwrite_options, _MODES)
        partitions = (
            PartitionOverwrite.parse(overwrite_options, has_condition=condition is not None)
            if overwrite
            else None
        )
        where_forms = tuple(parsed_json(overwrite_options.get("replace_where_forms", "[]")))
        given = given_conditions(overwrite_options)
        if replaces == "partitions" and condition is None and partitions is None:
            # The option says static, and the clause PARTITION which rows are meant.
            where_forms = tuple(given.values())
            if not all(where_forms):
                partitions, where_forms = PartitionOverwrite(tuple(given)), ()
        if overwrite and not flag("overwrite_schema", overwrite_options, default=True):
            raise InvalidOptionError(
                "option overwriteSchema must be true: an overwrite of all rows takes the "
                "DataFrame's columns, and a partial overwrite keeps the table's; remove the option"
            )
        is_partial = condition is not None or (partitions is not None and partitions.is_required)
        if is_partial and "overwrite_schema" in overwrite_options:
            raise InvalidOptionError(
                "option overwriteSchema applies to overwrites of all rows: a partial overwrite "
                "keeps the table's columns; remove the option"
            )
        merge, must_create = (
            flag("merge_schema", overwrite_options),
            flag("must_create", overwrite_options),
        )
        if condition is not None and not overwrite:
            raise InvalidOptionError(
                'option replaceWhere applies to overwrites only: use .mode("overwrite"), or '
                "remove the option"
            )
        if merge and overwrite:
            raise InvalidOptionError(
                "option mergeSchema applies to appends only: an overwrite of all rows takes the "
                "DataFrame's columns, and a partial overwrite keeps the table's"
            )
        return cls(
            merge_schema=merge,
            write_token=_write_token(overwrite_options),
            replace_where=condition,
            partitions=partitions,
            timezone=timezone_of(overwrite_options),
            settings=_settings(overwrite_options),
            replaces_rows=replaces in ("all", "partitions")
            and condition is None
            and not partitions
            and not where_forms,
            is_by_name=replaces is not None,
            where_forms=where_forms,
            given=given,
            new_table=_new_table(overwrite_options.get("new_table"), must_create),
            must_create=must_create,
            must_exist=flag("must_exist", overwrite_options),
            rows_read=_version(overwrite_options.get("rows_read")),
            query_metadata=parsed_json(overwrite_options.get("query_metadata", "{}")),
            opened=overwrite_options.get("opened_version"),
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


def _settings(overwrite_options: Mapping[str, str]) -> SqlSettings | None:
    text = overwrite_options.get("session_settings")
    if text is None:
        return None
    return parse_settings(parsed_json(text))


def _write_token(overwrite_options: Mapping[str, str]) -> WriteToken | None:
    app, version = (
        non_blank("txn_app_id", overwrite_options),
        whole_number("txn_version", overwrite_options, minimum=0),
    )
    try:
        return write_of(app, version)
    except InvalidInputError as error:
        raise InvalidOptionError(f"options {error}") from None
