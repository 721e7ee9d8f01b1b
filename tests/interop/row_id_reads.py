"""Reads of a table with stable row ids, by the pylance of the interpreter: by row id and by index.

python -m tests.interop.row_id_reads TABLE ROWS

prints wrong answers as JSON. `ROWS` is a file with the expected `id`, `n` and `_rowid` of each row.
Nothing here imports this package: the interpreter can have any release of pylance.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.soak.clients import vector_of

#: `writer` is `id` modulo this. Its BITMAP index is one that all releases use.
GROUPS = 5
Rows = list[tuple[int, int, int]]


def wrong_answers(path: str, rows: Rows) -> list[str]:
    """Return what pylance answers wrongly.

    Parameters
    ----------
    rows : list of (int, int, int)
        `id`, `n` and `_rowid`.
    """
    import lance

    major = int(lance.__version__.split(".")[0])
    dataset: Any = lance.dataset(path)
    if major >= 14:
        # Earlier, it refuses files with a column that an update has replaced.
        dataset.validate()
    scanned = dataset.to_table(columns=["id", "n"], with_row_id=True).to_pydict()
    found = sorted(zip(scanned["id"], scanned["n"], scanned["_rowid"], strict=True))
    if found != sorted(rows):
        return [f"a scan has {len(found)} rows, {len(set(found) ^ set(rows))} differences"]
    keys = sorted(key for key, _, _ in rows)
    row_ids = {key: row_id for key, _, row_id in rows}
    some = keys[:: max(len(keys) // 12, 1)]
    middle, end = keys[len(keys) // 3], keys[len(keys) // 2]

    def ids(*columns: str, **query: Any) -> list[int]:
        found = dataset.to_table(columns=["id", *columns], **query)["id"].to_pylist()
        # Searches by releases before 9 find rows twice that a merge has moved, also in tables of
        # these releases alone.
        return sorted(set(found) if columns and major < 9 else found)

    def nearest(key: int) -> list[int]:
        query = {"column": "v", "q": vector_of(key), "k": 5, "nprobes": 9}
        return ids("_distance", filter=f"id = {key}", prefilter=True, nearest=query)

    def word(number: int) -> list[int]:
        return ids("_score", full_text_query=f"v{number}")

    checks: list[tuple[str, Callable[[], list[int]], list[int]]] = [
        (
            "the range",
            lambda: ids(filter=f"id >= {middle} AND id < {end}"),
            keys_in(keys, middle, end),
        ),
        ("rows by row id", lambda: taken(dataset, [row_ids[key] for key in some]), some),
    ]
    for group in range(GROUPS):
        members = [key for key in keys if key % GROUPS == group]
        checks.append((f"group {group}", partial(ids, filter=f"writer = {group}"), members))
    for key in some:
        checks += [
            (f"id = {key}", partial(ids, filter=f"id = {key}"), [key]),
            (f"nearest with id = {key}", partial(nearest, key), [key]),
        ]
    # Releases before 4 do not know this version of the index.
    for number in (0, 17, 33) if major >= 4 else ():
        expected = [key for key in keys if key % 50 == number]
        checks.append((f"the word v{number}", partial(word, number), expected))
    wrong = []
    for name, read, expected in checks:
        try:
            answer: object = read()
        except BaseException as error:  # pylance's panics are no exceptions.
            answer = f"{type(error).__name__}: {error}"[:200]
        if answer != expected:
            wrong.append(f"{name}: {str(answer)[:200]}, not {str(expected)[:200]}")
    return wrong


def keys_in(keys: list[int], start: int, stop: int) -> list[int]:
    return [key for key in keys if start <= key < stop]


def taken(dataset: Any, row_ids: list[int]) -> list[int]:
    found: list[int] = dataset._take_rows(row_ids, columns=["id"])["id"].to_pylist()
    return found


if __name__ == "__main__":
    rows = [tuple(row) for row in json.loads(Path(sys.argv[2]).read_text())]
    print(json.dumps(wrong_answers(sys.argv[1], rows)))
