"""Options of change feeds and of streams that read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lance_spark.errors import InvalidOptionError, naming
from lance_spark.spark.options.options import ReadOptions
from lance_spark.spark.options.values import flag, moment, whole_number
from lance_spark.storage.uri import parse_uri


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
        given = options.feed
        for end in ("starting", "ending"):
            if f"{end}_version" in given and f"{end}_timestamp" in given:
                raise InvalidOptionError(
                    f"options {end}Version and {end}Timestamp exclude each other: set only one"
                )
        parsed = cls(
            change_feed=flag("read_change_feed", given),
            starting_version=whole_number("starting_version", given),
            ending_version=whole_number("ending_version", given),
            starting_timestamp=moment(given.get("starting_timestamp"), "startingTimestamp"),
            ending_timestamp=moment(given.get("ending_timestamp"), "endingTimestamp"),
            max_fragments=whole_number("max_fragments_per_trigger", given),
            max_bytes=whole_number("max_bytes_per_trigger", given),
            skip_change_commits=flag("skip_change_commits", given),
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
    """Refuse a version, and options about the fragments of a version."""
    for name in ("version", "tag", "timestamp"):
        if getattr(options, name) is not None:
            raise InvalidOptionError(f"option {name} selects one version; {instead}")
    for name, is_set in (
        ("fragment_ids", options.fragment_ids is not None),
        ("whole_fragments", options.whole_fragments),
    ):
        if is_set:
            raise InvalidOptionError(
                f"option {name} applies to reads of one version, not to streams and change feeds; "
                "remove it"
            )
