"""Text inputs, and files that are neither messages nor data files."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.hostile.mutate import NUMBERS, TEXTS, worse_bytes

_PLACES: list[Any] = [
    None,
    True,
    -1,
    1.5,
    [],
    {},
    [[1]],
    [[-1, 7]],
    {"a": [1]},
    *NUMBERS,
    *(text for text in TEXTS if len(text) < 200),
]


def references() -> list[bytes]:
    """Return tags and branches."""
    some: list[Any] = [
        {"version": 2, "manifestSize": 300, "branch": None},
        {"version": 2, "branch": "b", "metadata": {"a": "b"}},
        {"version": 2, "createdAt": "2024-01-01T00:00:00Z", "updatedAt": "2024-01-01T00:00:00.5Z"},
        {"parentBranch": "b", "parentVersion": 2, "createAt": 1, "manifestSize": 3},
        {
            "parentVersion": 2,
            "createAt": 1,
            "identifier": {"version_mapping": [[1, "x"], [2, "y"]]},
            "metadata": {},
        },
    ]
    return [json.dumps(item).encode() for item in some]


def json_texts() -> list[bytes]:
    """Return JSON of every kind."""
    some: list[Any] = [{"a": [1, 2.5, None, True, "x"]}, [], {}, 5, "é\ud83d\ude00", -(2**63)]
    return [json.dumps(item).encode() for item in some]


def positions() -> list[bytes]:
    """Return positions of a stream."""
    return [json.dumps({"version": 3, "index": 2, "snapshot": False}).encode()]


def worse_json(data: bytes, rng: random.Random) -> bytes:
    """Change a value somewhere in a JSON text, or the text itself."""
    draw = rng.random()
    if draw < 0.1:
        return rng.choice((b"[", b'{"a":', b"[[],", b'"\\u', b"-", b"1e")) * rng.choice(
            (1, 990, 60_000)
        )
    if draw < 0.15:
        return b'{"version": ' + rng.choice((b"9" * 10_000, b"1e999", b"NaN", b"-Infinity")) + b"}"
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return worse_bytes(data, rng)
    if draw < 0.4 or not isinstance(value, dict | list) or not value:
        return worse_bytes(data, rng)
    place = value
    while True:
        key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.4:
            break
        place = inner
    if rng.random() < 0.15 and isinstance(place, dict):
        del place[key]
    else:
        place[key] = rng.choice(_PLACES)
    return json.dumps(value).encode()


def predicates() -> list[bytes]:
    """Return predicates of each kind."""
    return [
        text.encode()
        for text in (
            "i = 3 and s like 'a%'",
            "i in (1, 2, 3) or not (f > 1.5e3)",
            "d = DATE '2024-01-31' and t < TIMESTAMP '2024-01-31 12:00:00+01:00'",
            "m between -1.5 and 2.25BD and b = X'1F'",
            "r.a <=> null or r.`b` is not null",
            "isnan(f) or startswith(s, 'x') or s like 'a\\_' escape '\\'",
            "flag is true and i is distinct from 4",
            "cast('2024-01-01' as date) < d",
            "t > '2024-01-01 00:00:00 Europe/Berlin'",
            "i + 1 = 2",
        )
    ]


def worse_predicate(data: bytes, rng: random.Random) -> bytes:
    """Change a predicate: insert other predicates, nest it, or write long numbers."""
    draw = rng.random()
    if draw < 0.15:
        depth = rng.choice((10, 150, 250, 900, 5_000))
        prefix = rng.choice((b"(", b"not ", b"-", b"i = 1 and ", b"case when "))
        return prefix * depth + data + (b")" * depth if prefix == b"(" else b"")
    if draw < 0.3:
        number = rng.choice(
            (
                *(b"9" * 400, b"1e999", b"1e-999", b"0." + b"0" * 300 + b"1", b"1E400BD"),
                *(b"1EBD", b"1e999999999BD", b"-1e999999999BD", b"9" * 30_000 + b"BD"),
                *(b"cast(-1 as int)", b"1" + b"::int" * 900),
            )
        )
        return (
            rng.choice((b"i = ", b"f < ", b"m = ", b"d > ", b"t = ", b"s = ", b"r.a in (1,"))
            + number
        )
    if draw < 0.45:
        text = rng.choice(
            (
                "-290308-12-21",
                "999999-01-01",
                "0000-00-00",
                "2024-02-30",
                "٣",
                "\0",
                "inf",
                "x" * 9_000,
            )
        )
        return f"{rng.choice(('d', 't', 's', 'i', 'f', 'm', 'b', 'flag'))} = '{text}'".encode()
    if draw < 0.7:
        words = data.split()
        words[rng.randrange(len(words))] = rng.choice(b" ".join(predicates()).split())
        return b" ".join(words)
    return worse_bytes(data, rng)


def option_lines() -> list[bytes]:
    """Return options of reads and writes, one a line."""
    return [
        b"path=/tmp/t\nversion=3\nbatch_size=100\ncolumns=a,b",
        b"path=s3://b/t\naws_access_key_id=x\nendpoint=http://localhost\nallow_http=true",
        b"path=/tmp/t\ntimestamp=2024-01-31 12:00:00\nbranch=b\nfilter=i = 3",
        b'path=/tmp/t\nfragment_ids=1,2,3\ncolumns=["a","b.c"]\nblob_handling=all_binary',
        b"path=/tmp/t\nmax_rows_per_file=10\ndata_storage_version=2.1\nenable_stable_row_ids=true",
        b"path=/tmp/t\ncommit_message=x\nexternal_blob_mode=ingest\ntimezone=Europe/Berlin",
    ]


def worse_text(data: bytes, rng: random.Random) -> bytes:
    """Change the value of an option, or any byte."""
    lines = data.split(b"\n")
    if rng.random() < 0.3:
        return worse_bytes(data, rng)
    at = rng.randrange(len(lines))
    name = lines[at].partition(b"=")[0]
    value = rng.choice(
        (*TEXTS, *map(str, NUMBERS), "-1", "1e5", "true", "٣", "[" * 5_000, "9" * 5_000)
    )
    lines[at] = name + b"=" + str(value).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def option_values() -> list[bytes]:
    """Return values of options that have parts, and requests of the rule."""
    return [
        b'["a", "b.c"]',
        b'{"a": {"b": 1}}',
        b"2024-01-31T12:00:00+01:00",
        b'{"limit": 5, "exact": true, "packed": ["a"], "filters": [{"op": "=", "c": ["a"], "v": 1}]}',
        b'{"aggregates": [{"kind": "count"}], "at": {"version": 3, "branch": null}}',
        b"s3+ddb://bucket/a%20b?ddbTableName=t",
        b"file:///tmp/%2e%2e/x",
        b"abfss://c@account.dfs.core.windows.net/x",
        b"a/b/c.lance",
    ]
