"""The recorded order of a table: the columns by which all of its rows are sorted.

The commit of a sort records the order in the table's configuration, under `KEY`, as JSON:

| part | value |
| --- | --- |
| `columns` | list of `field` (id of a top-level column), `type` (Spark's name of the type by |
| | whose order the values are sorted), `descending` and `nulls_first` |
| `fragments` | number of fragments |
| `sha256` | hash of all fragments in the table's order: for each its id, its physical rows, and |
| | the paths of the data files that hold the columns |

Other clients keep the configuration and know nothing of the order. So a version is sorted only if
its fragments still have this hash (`order_of`).

| change | the version is known to be sorted afterwards |
| --- | --- |
| rows are deleted; other columns change; columns get other names or places | yes |
| a branch, a clone, a restored version: the same files | yes |
| whole fragments are removed, because all of their rows are deleted | if this package commits |
| new, rewritten or compacted fragments; an update | no |
| new values of a column: by a file, an overlay or another type | no |

Files are immutable, and their names are never used again. Their base paths are not part of the
hash: branches and clones refer to the same files by other base paths.

A `Rewrite` cannot carry a change of the configuration in its transaction. The commit that sorts
writes both into one manifest, as it does with the entry of the fragment reuse index. A second
commit could be lost, and would be a version of its own. A client that applies the transaction alone
gets a version without an order, and loses nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile

from lance_spark.proto import table_pb2

#: Key of the configuration. The specification keeps keys with the prefix "lance." to itself.
KEY = "lance_spark.sorted_by"
#: The key of early releases, which is read, and removed where the other one is written.
OLD_KEY = "lance.spark.sorted_by"
_PARTS = {"columns", "fragments", "sha256"}


@dataclass(frozen=True, slots=True)
class SortedColumn:
    """A column by which the rows of a table are sorted.

    - `field`: The id of a top-level field without children.
    - `type`: Spark's name of the type whose order of values counts.
    """

    field: int
    type: str
    descending: bool = False
    nulls_first: bool = True


def record(manifest: table_pb2.Manifest, columns: Sequence[SortedColumn]) -> None:
    """Record that the rows of a new version are sorted by some columns; by none if empty.

    - `manifest`: The message under construction, with all fragments.
    """
    hashed = _hash_of(manifest.fragments, columns) if columns else None
    for key in (KEY, OLD_KEY):
        if key in manifest.config:
            del manifest.config[key]
    if hashed is None:
        return
    value = {
        "columns": [asdict(column) for column in columns],
        "fragments": len(manifest.fragments),
        "sha256": hashed,
    }
    manifest.config[KEY] = json.dumps(value, separators=(",", ":"))


def order_of(manifest: table_pb2.Manifest) -> tuple[SortedColumn, ...]:
    """Return the columns by which the rows of a version are sorted; empty if that is unknown."""
    key = KEY if KEY in manifest.config else OLD_KEY
    if key not in manifest.config:
        return ()
    try:
        value = json.loads(manifest.config[key])
        columns = tuple(SortedColumn(**column) for column in value["columns"])
        if value.keys() != _PARTS or value["fragments"] != len(manifest.fragments):
            return ()
        is_same = value["sha256"] == _hash_of(manifest.fragments, columns)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        # Not a value of this release: another release or a user wrote it.
        return ()
    if not is_same or not all(map(_is_valid, columns)):
        return ()
    present = {field.id for field in manifest.fields}
    return tuple(takewhile(lambda column: column.field in present, columns))


def keep(base: table_pb2.Manifest, manifest: table_pb2.Manifest) -> None:
    """Record the order of a version again, if the next version has only some of its fragments.

    - `base`: The previous version.
    - `manifest`: The message of the next version under construction, complete but for the order.
    """
    is_recorded = KEY in manifest.config or OLD_KEY in manifest.config
    if not is_recorded or len(manifest.fragments) >= len(base.fragments):
        return
    columns = order_of(base)
    if not columns:
        return
    wanted = [column.field for column in columns]
    remaining = iter([_text_of(fragment, wanted) for fragment in base.fragments])
    # Each fragment must come after the one before it, also in the base.
    if all(_text_of(fragment, wanted) in remaining for fragment in manifest.fragments):
        record(manifest, columns)


def _is_valid(column: SortedColumn) -> bool:
    flags = (column.descending, column.nulls_first)
    is_typed = type(column.field) is int and isinstance(column.type, str)
    return is_typed and all(isinstance(flag, bool) for flag in flags)


def _hash_of(
    fragments: Iterable[table_pb2.DataFragment], columns: Sequence[SortedColumn]
) -> str | None:
    """Return the hash of fragments; None if a column has no file, or an overlay, in one of them."""
    wanted = [column.field for column in columns]
    digest = hashlib.sha256()
    for fragment in fragments:
        text = _text_of(fragment, wanted)
        if text is None:
            return None
        digest.update(f"{text}\n".encode())
    return digest.hexdigest()


def _text_of(fragment: table_pb2.DataFragment, wanted: Sequence[int]) -> str | None:
    for overlay in fragment.overlays:
        if not set(wanted).isdisjoint(overlay.data_file.fields):
            return None
    parts = [f"{fragment.id} {fragment.physical_rows}"]
    files = [(file.path, tuple(file.fields)) for file in fragment.files]
    for field in wanted:
        paths = [path for path, fields in files if field in fields]
        if len(paths) != 1:
            return None
        # A path may have any characters.
        parts.append(f"{len(paths[0])} {paths[0]}")
    return " ".join(parts)
