"""The options of change feeds and of streams that read."""

from __future__ import annotations

from dataclasses import dataclass

from lance_spark.errors import InvalidOptionError, error_context
from lance_spark.spark.options.declared import FeedFields
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.options.values import moment, parsed
from lance_spark.storage.uri import parse_uri


@dataclass(frozen=True, kw_only=True)
class FeedOptions(FeedFields):
    """The changes of a table that are read. Versions and times are inclusive; times are in UTC."""

    @classmethod
    def parse(cls, options: ReadOptions) -> FeedOptions:
        """Parse the options of a read that are about changes.

        Raises InvalidOptionError: a value is invalid, or two options exclude each other.
        """
        with error_context(parse_uri(options.path).display):
            return cls._parse(options)

    @classmethod
    def _parse(cls, options: ReadOptions) -> FeedOptions:
        for end in ("starting", "ending"):
            if f"{end}_version" in options.feed and f"{end}_timestamp" in options.feed:
                raise InvalidOptionError(
                    f"options {end}Version and {end}Timestamp exclude each other: set only one"
                )
        values = parsed(FeedFields, options.feed)
        for name in ("starting_timestamp", "ending_timestamp"):
            if name in values:
                shown = FeedFields.declared[name].shown
                values[name] = moment(values[name], options.timezone, shown)
        feed = cls(**values)
        if feed.read_change_feed and options.filter is not None:
            raise InvalidOptionError(
                "option filter does not apply to change feeds: use .where() on the DataFrame"
            )
        if feed.read_change_feed and feed.skip_change_commits:
            raise InvalidOptionError(
                "options readChangeFeed and skipChangeCommits exclude each other: a change feed "
                "contains all changes; remove one of them"
            )
        return feed

    def of_batch(self, options: ReadOptions) -> FeedOptions:
        """Return the options, checked for a change feed that a batch query reads.

        Raises InvalidOptionError.
        """
        if not self.read_change_feed:
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
        """Return the options, checked for a stream. Raises InvalidOptionError."""
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
    """Refuse a version, and options that are not for streams."""
    for name in ("version", "tag", "timestamp"):
        if getattr(options, name) is not None:
            raise InvalidOptionError(f"option {name} selects one version; {instead}")
    for name, declared in ReadOptions.declared.items():
        is_given = getattr(options, name, None) not in (None, False)
        if is_given and not declared.for_streams:
            raise InvalidOptionError(
                f"option {declared.shown} applies to reads of one version, not to streams and "
                "change feeds; remove it"
            )
