"""Automatic cleanup after commits, controlled by the table's configuration.

| key `lance.auto_cleanup.` | value | meaning |
| --- | --- | --- |
| `interval` | number | clean up after versions divisible by it; 0: after all; no key: never |
| `older_than` | `14d`, `1h 30m`, ... | remove only versions of at least this age |
| `retain_versions` | number > 0 | keep this number of newest versions |
| `referenced_branch` | `true`, `false` | clean up branches first, see below |
| `delete_rate_limit` | number > 0 | limit of files deleted per second |
| `delete_concurrency` | number > 0 | limit of concurrent requests |

With `referenced_branch`, branches that were made from removable versions are cleaned up first, each
by its own configuration.

The rules are as in pylance: the configuration of the new version counts; the version before it
stays as well; without `older_than` and `retain_versions` every older version goes; a tag on a
removable version, or a value that cannot be parsed, prevents the whole cleanup. The commit that
creates a table triggers no cleanup. Errors are logged and not raised, since the commit has
happened.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.cleanup.plan import CleanupPolicy
from lance_spark.table.cleanup.run import CleanupStats, cleanup
from lance_spark.table.manifest.codec import find_manifest
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import list_manifests
from lance_spark.table.open import read_latest
from lance_spark.table.refs.branch_store import origin_version, read_branches
from lance_spark.table.refs.names import branch_store, main_store

PREFIX = "lance.auto_cleanup."
INTERVAL = f"{PREFIX}interval"
_LOG = logging.getLogger("lance_spark")
_MAX_U64 = 2**64 - 1
_NUMBER = re.compile(r"\+?[0-9]{1,40}")
_DURATION = re.compile(r"\s*([0-9]+)(?:\.([0-9]+))?\s*([A-Za-zµ]+)\s*")
_SECOND = 10**9
_UNITS = {
    1: ("nanos", "nsec", "ns"),
    10**3: ("usec", "us", "µs"),
    10**6: ("millis", "msec", "ms"),
    _SECOND: ("seconds", "second", "secs", "sec", "s"),
    60 * _SECOND: ("minutes", "minute", "min", "mins", "m"),
    3600 * _SECOND: ("hours", "hour", "hrs", "hr", "h"),
    86_400 * _SECOND: ("days", "day", "d"),
    7 * 86_400 * _SECOND: ("weeks", "week", "wks", "wk", "w"),
    # Averages: 30.44 and 365.25 days.
    2_630_016 * _SECOND: ("months", "month", "M"),
    31_557_600 * _SECOND: ("years", "year", "yrs", "yr", "y"),
}
_NANOSECONDS = {name: length for length, names in _UNITS.items() for name in names}


@dataclass(frozen=True, slots=True)
class AutoCleanup:
    """The cleanup that a table's configuration requests after one version.

    - `branches`: Whether branches are cleaned up first.
    - `delete_rate_limit`, `delete_concurrency`: As for `cleanup`.
    """

    policy: CleanupPolicy
    branches: bool = False
    delete_rate_limit: int | None = None
    delete_concurrency: int | None = None


def clean_up_after_commit(store: ObjectStore, manifest: Manifest) -> CleanupStats | None:
    """Clean up after a commit, if the configuration requests it. Errors are logged, not raised.

    - `store`: Root of the table or branch.
    - `manifest`: The version that was committed.
    """
    try:
        return _clean_up(store, manifest)
    # An error would look as if the commit had failed: the caller would delete its files.
    except Exception as error:
        _LOG.warning(
            "version %d is committed; cleanup after it failed: %s", manifest.version, error
        )
        return None


def requested_cleanup(config: Mapping[str, str], version: int) -> AutoCleanup | None:
    """Return the cleanup that a configuration requests after a version, or None.

    Raises InvalidInputError: a value cannot be parsed.
    """
    if INTERVAL not in config:
        return None
    interval = _number(config, "interval", 0)
    if interval and version % interval:
        return None
    age = config.get(f"{PREFIX}older_than")
    branches = config.get(f"{PREFIX}referenced_branch", "false")
    if branches not in ("true", "false"):
        raise InvalidInputError(
            f"{PREFIX}referenced_branch must be 'true' or 'false', not {branches!r}"
        )
    policy = CleanupPolicy(
        before_ns=None if age is None else time.time_ns() - parse_duration(age),
        retain_versions=_number(config, "retain_versions", 1),
    )
    return AutoCleanup(
        policy,
        branches == "true",
        _number(config, "delete_rate_limit", 1),
        _number(config, "delete_concurrency", 1),
    )


def parse_duration(text: str) -> int:
    """Return a duration such as ``14d``, ``1h 30m`` or ``0`` in nanoseconds.

    Raises InvalidInputError: the text is not a sequence of numbers with known units.
    """
    if text.strip() == "0":
        return 0
    position, total = 0, 0
    while part := _DURATION.match(text, position):
        integer, fraction, unit = part.groups()
        if unit not in _NANOSECONDS or len(integer) > len(str(_MAX_U64)):
            break
        length = _NANOSECONDS[unit]
        total += int(integer) * length
        if fraction:
            total += int(fraction[:9]) * length // 10 ** len(fraction[:9])
        position = part.end()
    if not text.strip() or position < len(text):
        raise InvalidInputError(
            f"{PREFIX}older_than must be a duration such as '14d' or '1h 30m', not {text!r}"
        )
    return total


def _number(config: Mapping[str, str], key: str, least: int) -> int | None:
    text = config.get(PREFIX + key)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= _MAX_U64:
        raise InvalidInputError(
            f"{PREFIX}{key} must be a whole number of at least {least}, not {text!r}"
        )
    return int(text)


def _clean_up(store: ObjectStore, manifest: Manifest) -> CleanupStats | None:
    auto = requested_cleanup(manifest.config, manifest.version)
    if auto is None:
        return None
    if auto.branches:
        _clean_up_branches(store, manifest, auto)
    return cleanup(
        store,
        auto.policy,
        read_version=manifest.version - 1,
        branch=manifest.branch,
        delete_rate_limit=auto.delete_rate_limit,
        delete_concurrency=auto.delete_concurrency,
    )


def _clean_up_branches(store: ObjectStore, manifest: Manifest, parent: AutoCleanup) -> None:
    """Clean up the branches that were made from removable versions, descendants first."""
    main = main_store(store, manifest.branch)
    branches = read_branches(main)
    located = {location.version: location for location in list_manifests(store)}
    for name, _ in sorted(branches.items(), key=lambda item: -len(item[1].identifier or ())):
        number = origin_version(name, manifest.branch, branches)
        if number is None or name == manifest.branch:
            continue
        location = located.get(number)
        version = find_manifest(store, location) if location else None
        if version is not None and not parent.policy.allows(version):
            continue
        root = branch_store(main, name)
        newest = read_latest(root)
        auto = requested_cleanup(newest.config, newest.version)
        if auto is not None:
            cleanup(
                root,
                replace(auto.policy, error_if_tagged_old_versions=False),
                read_version=newest.version,
                branch=name,
                # All branches share the limits of the cleanup that they are a part of.
                delete_rate_limit=parent.delete_rate_limit,
                delete_concurrency=parent.delete_concurrency,
            )


def cleanup_config(options: Mapping[str, int] | None) -> dict[str, str]:
    """Return the configuration for the options that pylance has.

    - `options`: ``interval`` and ``older_than_seconds``.

    Raises InvalidOptionError: an option is unknown, or not a number from 0 on.
    """
    config = {}
    for name, value in (options or {}).items():
        if name not in ("interval", "older_than_seconds"):
            raise InvalidOptionError(
                f"auto_cleanup_options: {name!r} must be one of 'interval', 'older_than_seconds'"
            )
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InvalidOptionError(
                f"auto_cleanup_options: {name!r} must be a number from 0 on, not {value!r}"
            )
        if name == "interval":
            config[INTERVAL] = str(value)
        else:
            config[f"{PREFIX}older_than"] = f"{value}s"
    return config
