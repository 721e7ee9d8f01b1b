"""Options about base paths: those of a new table, and those that new data files go to."""

from __future__ import annotations

from collections.abc import Mapping

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.spark.options.values import column_names, flag, json_list
from lance_spark.table.bases import TargetBases, new_bases
from lance_spark.table.paths import BasePath

_KEYS = frozenset({"path", "name", "is_dataset_root", "id"})
_MAX_ID = 2**32 - 1


def initial_bases(plain: Mapping[str, str]) -> tuple[BasePath, ...]:
    """Return the base paths that the option initial_bases gives a new table; empty if it is not
    given.

    Raises
    ------
    InvalidOptionError
        The value is not a JSON list of objects with a path, or two of them share a name, path or
        id.
    """
    text = plain.get("initial_bases")
    if text is None:
        return ()
    entries = json_list(text)
    if entries is None or not all(_is_base(entry) for entry in entries):
        # A path may hold a password, so the message shows no part of the value.
        raise InvalidOptionError(
            'option initial_bases must be a JSON list such as [{"path": "s3://bucket/cold", '
            '"name": "cold"}]; each entry needs a path, and can have a name, is_dataset_root (true '
            "or false) and an id (a whole number)"
        )
    bases = [
        BasePath(
            entry.get("id") or 0,
            entry["path"],
            entry.get("is_dataset_root") or False,
            entry.get("name"),
        )
        for entry in entries
    ]
    try:
        return new_bases(bases)
    except InvalidInputError as error:
        raise InvalidOptionError(f"option initial_bases: {error}") from None


def target_bases(plain: Mapping[str, str]) -> TargetBases:
    """Return the base paths that new data files go to: the options target_bases and
    target_all_bases.

    Raises
    ------
    InvalidOptionError
        Both options are given, or the value of one is invalid.
    """
    names = column_names("target_bases", plain.get("target_bases"))
    all_bases = flag("target_all_bases", plain) if "target_all_bases" in plain else None
    return TargetBases(names, all_bases)


def _is_base(entry: object) -> bool:
    if not isinstance(entry, dict) or not set(entry) <= _KEYS:
        return False
    path, name, number = entry.get("path"), entry.get("name"), entry.get("id")
    return (
        isinstance(path, str)
        and bool(path.strip())
        and (name is None or isinstance(name, str))
        and isinstance(entry.get("is_dataset_root", False), bool)
        and (number is None or (type(number) is int and 0 <= number <= _MAX_ID))
    )
