"""Options of change feeds and of streams that read: parsed and checked here, once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lance_spark.errors import InvalidOptionError, naming
from lance_spark.spark.options.options import ReadOptions
from lance_spark.spark.options.values import flag, moment, whole
from lance_spark.storage.uri import parse_uri


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """Which changes of a table are read.

    Attributes
    ----------
    change_feed : bool
        Whether inserted, updated and deleted rows are read; rows that are added otherwise.
    starting_version, ending_version : int or None
        Both inclusive.
    starting_timestamp, ending_timestamp : datetime or None
        The first version of that time or later; the last one of that time or before. In UTC.
    max_fragments, max_bytes : int or None
        Fragments, and bytes of their files, that a batch of a stream aims at.
    skip_change_commits : bool
        Whether a stream passes over versions that changed rows.
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
        """Parse what the options of a read say of changes.

        Raises
        ------
        InvalidOptionError
            A value cannot be used, or two options contradict one another.
        """
        with naming(parse_uri(options.path).display):
            return cls._parse(options)

    @classmethod
    def _parse(cls, options: ReadOptions) -> FeedOptions:
        given = options.feed
        for end in ("starting", "ending"):
            if f"{end}_version" in given and f"{end}_timestamp" in given:
                raise InvalidOptionError(
                    f"options {end}Version and {end}Timestamp exclude one another: give one"
                )
        result = cls(
            change_feed=flag("read_change_feed", given),
            starting_version=whole("starting_version", given),
            ending_version=whole("ending_version", given),
            starting_timestamp=moment(given.get("starting_timestamp"), "startingTimestamp"),
            ending_timestamp=moment(given.get("ending_timestamp"), "endingTimestamp"),
            max_fragments=whole("max_fragments_per_trigger", given),
            max_bytes=whole("max_bytes_per_trigger", given),
            skip_change_commits=flag("skip_change_commits", given),
        )
        if result.change_feed and options.filter is not None:
            raise InvalidOptionError(
                "option filter is not for change feeds: use .where() on the DataFrame"
            )
        if result.change_feed and result.skip_change_commits:
            raise InvalidOptionError(
                "a change feed tells of all changes: leave readChangeFeed or skipChangeCommits out"
            )
        return result

    def of_batch(self, options: ReadOptions) -> FeedOptions:
        """Return the options, checked for a change feed that is read at once.

        Raises
        ------
        InvalidOptionError
        """
        if not self.change_feed:
            raise InvalidOptionError(
                f"option {next(iter(options.feed))} is for change feeds and streams: set "
                "readChangeFeed, or use "
                "spark.readStream"
            )
        _refuse_versions(options, "startingVersion and endingVersion say which changes are read")
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
        _refuse_versions(
            options, "a stream begins at startingVersion, or at the newest one, and goes on"
        )
        if self.ending_version is not None or self.ending_timestamp is not None:
            raise InvalidOptionError(
                "a stream has no end: leave endingVersion and endingTimestamp out, or use "
                "trigger(availableNow=True)"
            )
        return self


def _refuse_versions(options: ReadOptions, instead: str) -> None:
    for name in ("version", "tag", "timestamp"):
        if getattr(options, name) is not None:
            raise InvalidOptionError(f"option {name} reads one version; {instead}")
