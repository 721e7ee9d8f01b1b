"""Columns of strings and of bytes, similar to columns of real tables.

Some columns compress well, some compress little, and some do not compress at all.
"""

from __future__ import annotations

import base64
import uuid

import numpy as np
import pyarrow as pa

from benchmarks import tables


def words(text: str) -> list[str]:
    return text.split()


SYLLABLES = words("ka lo mi ter an os vel in dra su en po ri tha")
ENGLISH = words(
    "the of and to in a is that for it as was with be by on not he his but at are this have from "
    "or had an they which "
    "one you were all her she there would their we him been has when who will no more if out so up "
    "said what its about "
    "than into them can only other time new some could these two may first then do any like my now "
    "over such our man me "
    "even most made after also did many off before must well back through years where much your "
    "way down should because "
    "long each just state those people too how little good world make very year still see own work "
    "men day get here "
    "between both being under three never know same last another while us might great go come "
    "since against right came "
    "take used himself few house place during without high again home around small however found "
    "thought went say "
    "general once upon school every"
)
FOREIGN = words(
    "λόγος αρχή τέλος κόσμος φύσις ψυχή 日本語 東京 データ 文字列 größe straße über naïve façade école"
)
NAMES = words(
    "Anna Bert Clara David Elena Frank Greta Hans Ivana Jorge Kofi Lena Mateo Nadia Olga Pedro "
    "Quinn Rosa"
)
LEVELS = words("INFO INFO INFO DEBUG WARN ERROR")
MODULES = words("http.server db.pool auth.session cache.redis queue.worker")


def columns(rows: int) -> dict[str, pa.Array]:
    """Return the columns. The values are the same in every run.

    A column has `rows` values, or fewer if its values are long.
    """
    rng = np.random.default_rng(1)
    vocabulary = np.array(
        ["".join(rng.choice(SYLLABLES, rng.integers(1, 5))) for _ in range(3_000)]
    )
    common_words = vocabulary[
        np.minimum(rng.zipf(1.3, rows * 12) - 1, len(vocabulary) - 1)
    ].tolist()
    odds = 1 / np.arange(1, len(ENGLISH) + 1)
    english_words = np.array(ENGLISH)[
        rng.choice(len(ENGLISH), rows * 14, p=odds / odds.sum())
    ].tolist()
    foreign_words = rng.choice(FOREIGN, rows * 6).tolist()
    hosts = [f"{word}.example.org" for word in vocabulary[:40].tolist()]
    numbers = rng.integers(0, 1 << 31, rows).tolist()
    pairs = list(zip(numbers, common_words, strict=False))
    sentences = [" ".join(common_words[i * 12 : i * 12 + 6 + i % 7]) for i in range(rows)]
    urls = [f"https://www.{hosts[n % 40]}/{w}/{n % 9_973}?page={n % 17}" for n, w in pairs]
    vectors = rng.normal(0, 1, (rows // 4, 16)).astype(np.float32)
    lengths = rng.integers(50, 350, rows // 10).tolist()
    values_of_column = {
        "benchmark table": next(tables.batches("strings", (rows + 0.5) / tables.ROWS))["text"],
        "words": common_words[:rows],
        "rare words": [
            start + end
            for start, end in zip(common_words[:rows], common_words[rows:], strict=False)
        ],
        "sentences": sentences,
        "sparse sentences": [
            s if n % 5 < 2 else None for s, n in zip(sentences, numbers, strict=True)
        ],
        "English": [
            " ".join(english_words[i * 14 : i * 14 + 5 + i % 10]) + "." for i in range(rows)
        ],
        "paragraphs": [
            " ".join(english_words[i * 200 : i * 200 + 150 + i % 50]) + "."
            for i in range(rows * 14 // 200)
        ],
        "Greek, Japanese": [
            " ".join(foreign_words[i * 6 : i * 6 + 2 + i % 5]) for i in range(rows)
        ],
        "URLs": urls,
        "URLs, sorted": sorted(urls),
        "paths": [
            f"s3://bucket-{n % 3}/raw/year=20{n % 24:02}/month={1 + n % 12:02}/part-{n % 100_000:05}-{n:08x}.parquet"
            for n in numbers
        ],
        "e-mail": [f"{NAMES[n % 18].lower()}.{w}{n % 100}@{hosts[n % 7]}" for n, w in pairs],
        "names": [f"{NAMES[n % 18]} {w.title()}" for n, w in pairs],
        "JSON": [
            f'{{"id": {i}, "name": "{w}", "score": {n % 1000 / 10}, "tags": ["{w[:3]}", "x"]}}'
            for i, (n, w) in enumerate(pairs)
        ],
        "HTML": [
            f'<div class="row item-{n % 50}"><a href="/p/{n % 9_999}">{w}</a>'
            f"<span>{' '.join(english_words[i * 10 : i * 10 + 6])}</span></div>"
            for i, (n, w) in enumerate(pairs)
        ],
        "log lines": [
            f"2024-{1 + i % 12:02}-{1 + i % 28:02}T{n % 24:02}:{n % 60:02}:{n % 59:02}.{n % 1000:03}Z {LEVELS[n % 6]} "
            f"[{MODULES[n % 5]}] request id={n:08x} took {n % 997}ms status={200 + n % 5 * 100}"
            for i, n in enumerate(numbers)
        ],
        "UUIDs": [str(uuid.UUID(bytes=rng.bytes(16))) for _ in range(rows)],
        "hexadecimal": [rng.bytes(16).hex() for _ in range(rows)],
        "base 64": [base64.b64encode(rng.bytes(18)).decode() for _ in range(rows)],
        "codes": [
            f"{chr(65 + n % 26)}{chr(65 + n // 26 % 26)}{n // 676 % 10_000:04}" for n in numbers
        ],
        "digits": [str(n) for n in numbers],
        "short digits": [str(n % 100_000) for n in numbers],
        "times": [
            f"20{n % 24:02}-{1 + n % 12:02}-{1 + n % 28:02} {n % 24:02}:{n % 60:02}:{n % 59:02}"
            for n in numbers
        ],
        "telephone": [
            f"+1 ({200 + n % 800}) {n // 800 % 900 + 100}-{n % 10_000:04}" for n in numbers
        ],
        "points": [
            f"POINT({n % 36_000 / 100 - 180:.6f} {n // 7 % 18_000 / 100 - 90:.6f})" for n in numbers
        ],
        "random bytes": [rng.bytes(16) for _ in range(rows)],
        "random blobs": [rng.bytes(length) for length in lengths],
        "float vectors": [vector.tobytes() for vector in vectors],
        "C structs": [
            np.array([i, n % 100, n % 7, 0], "<i4").tobytes() for i, n in enumerate(numbers)
        ],
    }
    return {name: pa.array(values) for name, values in values_of_column.items()}
