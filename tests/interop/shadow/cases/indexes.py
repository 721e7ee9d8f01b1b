"""Indexes: parameters, segments, queries of each type, options of full-text search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.interop.shadow.client import Client
from tests.interop.shadow.outcomes import Case

Run = Callable[[Client, Path], Any]
COUNT = 300
VECTORS = np.random.default_rng(1).standard_normal((COUNT, 8)).astype(np.float32)
WORDS = ["quick brown fox", "lazy dogs", "the fox jumps", "running dog", "sleepy cat", "Café noir"]


def made(client: Client, path: Path, **options: Any) -> Any:
    rows = pa.table(
        {
            "id": range(COUNT),
            "n": [None if number % 10 == 0 else number % 50 for number in range(COUNT)],
            "f": [float("nan") if number % 17 == 0 else number / 4 for number in range(COUNT)],
            "w": [None if number % 11 == 0 else f"word {number % 40}" for number in range(COUNT)],
            "text": [f"{WORDS[number % 6]} {number % 9}" for number in range(COUNT)],
            "tags": [[number % 3, number % 5] for number in range(COUNT)],
            "s": [{"x": number % 20} for number in range(COUNT)],
            "v": pa.FixedSizeListArray.from_arrays(VECTORS.ravel(), 8),
            "bytes": pa.FixedSizeListArray.from_arrays(
                (np.abs(VECTORS.ravel()) * 60).astype(np.uint8), 8
            ),
        }
    )
    client.write(rows, path, max_rows_per_file=120, **options)
    return client.open(path)


def scalar(column: str, index_type: str, *filters: str, **options: Any) -> Run:
    """Create an index, change rows, and return the rows of filters."""

    def run(client: Client, path: Path) -> Any:
        made(client, path)
        client.open(path).create_scalar_index(column, index_type, **options)
        client.open(path).delete("id between 30 and 35")
        client.open(path).insert(client.open(path).take([0, 1, 2]))
        dataset = client.open(path)
        ids = [sorted(dataset.to_table(["id"], text)["id"].to_pylist()) for text in filters]
        return ids, dataset.count_rows()

    return run


def vectors(index_type: str, column: str = "v", k: int = 300, **options: Any) -> Run:
    """Create an index, and return the rows of a search of all of them."""

    def run(client: Client, path: Path) -> Any:
        made(client, path)
        client.open(path).create_index(column, index_type, **options)
        dataset = client.open(path)
        query = VECTORS[3] if column == "v" else np.arange(8, dtype=np.uint8)
        nearest = {"column": column, "q": query, "k": k, "nprobes": 8, "refine_factor": 50}
        rows = dataset.to_table(["id"], nearest=nearest)
        return sorted(rows["id"].to_pylist()), [index["name"] for index in dataset.list_indices()]

    return run


def text(query: Any, **options: Any) -> Run:
    def run(client: Client, path: Path) -> Any:
        made(client, path)
        client.open(path).create_scalar_index("text", "INVERTED", **options)
        make = query if callable(query) else (lambda names: query)
        table = client.open(path).to_table(["id"], full_text_query=make(client.query))
        return sorted(table["id"].to_pylist())

    return run


def facts(fact: Callable[[Any], Any], *changes: Callable[[Any], Any]) -> Run:
    def run(client: Client, path: Path) -> Any:
        made(client, path)
        for change in changes:
            change(client.open(path))
        return fact(client.open(path))

    return run


def segments(*, merged: bool = False, name: str = "i", twice: bool = False) -> Run:
    def run(client: Client, path: Path) -> Any:
        dataset = made(client, path)
        parts = [
            dataset.create_index_uncommitted("id", "BTREE", fragment_ids=ids)
            for ids in ([0], [0] if twice else [1, 2])
        ]
        if merged:
            parts = [dataset.merge_existing_index_segments(parts)]
        dataset.commit_existing_index_segments(name, "id", parts)
        newest = client.open(path)
        covered = sorted(sorted(index["fragment_ids"]) for index in newest.list_indices())
        return covered, newest.count_rows("id > 200")

    return run


def optimized(**options: Any) -> Callable[[Any], Any]:
    return lambda d: (d.optimize if hasattr(d, "optimize") else d).optimize_indices(**options)


def covered(dataset: Any) -> Any:
    return sorted((i["name"], sorted(i["fragment_ids"])) for i in dataset.list_indices())


BTREE = lambda d: d.create_scalar_index("id", "BTREE")  # noqa: E731
MORE = lambda d: d.insert(d.take([0, 1]))  # noqa: E731
NUMBERS = ("n = 7", "n > 45", "n in (1, 2, 99)", "n is null", "n is not null", "not n = 7")
TEXTS = ("w = 'word 3'", "w >= 'word 38'", "w is null", "starts_with(w, 'word 1')")
RUNS: dict[str, Run] = {
    "btree of numbers": scalar("n", "BTREE", *NUMBERS),
    "btree of floats": scalar("f", "BTREE", "f < 3", "f = 25.0", "f > 70 or f < 1"),
    "btree of text": scalar("w", "BTREE", *TEXTS),
    "btree of a child": scalar("s.x", "BTREE", "s.x = 3", "s.x > 17"),
    "btree with zones": scalar("n", "BTREE", *NUMBERS, zone_size=32),
    "bitmap of numbers": scalar("n", "BITMAP", *NUMBERS),
    "bitmap of text": scalar("w", "BITMAP", *TEXTS),
    "zone map": scalar("n", "ZONEMAP", *NUMBERS),
    "zone map of few rows": scalar("n", "ZONEMAP", *NUMBERS, rows_per_zone=16),
    "bloom filter": scalar("w", "BLOOMFILTER", *TEXTS),
    "bloom filter of few items": scalar("n", "BLOOMFILTER", *NUMBERS, number_of_items=64),
    "ngram": scalar("text", "NGRAM", "contains(text, 'fox')", "contains(text, 'do')"),
    "label list": scalar("tags", "LABEL_LIST", "array_has(tags, 4)", "array_has_any(tags, [0, 4])",
        "array_has_all(tags, [1, 2])"),
    "label list of no list": scalar("n", "LABEL_LIST"),
    "ngram of numbers": scalar("n", "NGRAM"),
    "btree of lists": scalar("tags", "BTREE"),
    "inverted of numbers": scalar("n", "INVERTED"),
    "in lower case": scalar("n", "btree", *NUMBERS),
    "option of another type": scalar("n", "BITMAP", rows_per_zone=4),
    "zones of no rows": scalar("n", "ZONEMAP", rows_per_zone=0),
    "without training": scalar("n", "BTREE", *NUMBERS, train=False),
    "of some fragments": scalar("n", "BTREE", *NUMBERS, fragment_ids=[0]),
    "of an unknown fragment": scalar("n", "BTREE", fragment_ids=[77]),
    "ivf flat": vectors("IVF_FLAT", num_partitions=4),
    "ivf flat, cosine": vectors("IVF_FLAT", num_partitions=4, metric="cosine"),
    "ivf flat, dot": vectors("IVF_FLAT", num_partitions=4, metric="dot"),
    "ivf flat, hamming": vectors("IVF_FLAT", "bytes", num_partitions=2, metric="hamming"),
    "ivf flat, hamming of floats": vectors("IVF_FLAT", num_partitions=2, metric="hamming"),
    "ivf flat, euclidean": vectors("IVF_FLAT", num_partitions=4, metric="euclidean"),
    "ivf sq": vectors("IVF_SQ", num_partitions=4),
    "ivf pq": vectors("IVF_PQ", num_partitions=4, num_sub_vectors=4),
    "ivf pq, 4 bits": vectors("IVF_PQ", num_partitions=4, num_sub_vectors=4, num_bits=4),
    "ivf rq": vectors("IVF_RQ", num_partitions=4),
    "a partition": vectors("IVF_FLAT", num_partitions=1),
    "given centroids": vectors("IVF_FLAT", num_partitions=2, ivf_centroids=VECTORS[:2].copy()),
    "centroids of another dimension": vectors(
        "IVF_FLAT", num_partitions=2, ivf_centroids=VECTORS[:2, :4].copy()
    ),
    "partitions of a size": vectors("IVF_FLAT", target_partition_size=100),
    "parts that do not fit": vectors("IVF_PQ", num_partitions=2, num_sub_vectors=3),
    "no partitions": vectors("IVF_FLAT", num_partitions=0),
    "an unknown type of vectors": vectors("IVF_NOTHING", num_partitions=2),
    "an unknown metric": vectors("IVF_FLAT", num_partitions=2, metric="nothing"),
    "vectors of numbers": vectors("IVF_FLAT", "n", num_partitions=2),
    "vectors named": vectors("IVF_FLAT", num_partitions=2, name="mine"),
    "text, all words": text({"query": "fox quick", "columns": ["text"]}),
    "text, a match": text(lambda q: q.MatchQuery("fox", "text")),
    "text, all of a match": text(lambda q: q.MatchQuery("fox quick", "text", operator=q.FullTextOperator.AND)),
    "text, fuzzy": text(lambda q: q.MatchQuery("fux", "text", fuzziness=1)),
    "text, fuzzy by itself": text(lambda q: q.MatchQuery("runing", "text", fuzziness=None)),
    "text, a phrase": text(lambda q: q.PhraseQuery("brown fox", "text"), with_position=True),
    "text, a phrase with a gap": text(
        lambda q: q.PhraseQuery("quick fox", "text", slop=1), with_position=True
    ),
    "text, a phrase without positions": text(lambda q: q.PhraseQuery("brown fox", "text")),
    "text, and": text(lambda q: q.MatchQuery("fox", "text") & q.MatchQuery("quick", "text")),
    "text, or": text(lambda q: q.MatchQuery("fox", "text") | q.MatchQuery("cat", "text")),
    "text, must not": text(
        lambda q: q.BooleanQuery(
            [(q.Occur.MUST, q.MatchQuery("fox", "text")), (q.Occur.MUST_NOT, q.MatchQuery("quick", "text"))]
        )
    ),
    "text, only must not": text(
        lambda q: q.BooleanQuery([(q.Occur.MUST_NOT, q.MatchQuery("fox", "text"))])
    ),
    "text, boosted": text(
        lambda q: q.BoostQuery(q.MatchQuery("fox", "text"), q.MatchQuery("quick", "text"))
    ),
    "text, several columns": text(lambda q: q.MultiMatchQuery("fox", ["text"])),
    "text, stems": text("runs"),
    "text, no stems": text("running", stem=False),
    "text, accents": text("cafe"),
    "text, with accents": text("cafe", ascii_folding=False),
    "text, stop words": text("the"),
    "text, with stop words": text("the", remove_stop_words=False),
    "text, own stop words": text("fox", custom_stop_words=["fox"]),
    "text, upper case": text("CAFÉ", lower_case=False, stem=False),
    "text, white space": text("noir", base_tokenizer="whitespace"),
    "text, raw": text("lazy dogs 1", base_tokenizer="raw"),
    "text, substrings": text("lee", base_tokenizer="ngram", min_ngram_length=3, max_ngram_length=3),
    "text, unknown tokenizer": text("fox", base_tokenizer="nothing"),
    "text, unknown language": text("fox", language="Nothing"),
    "text, long tokens": text("sleepy", max_token_length=5),
    "text of no words": text(""),
    "segments": segments(),
    "segments, merged": segments(merged=True),
    "segments, twice": segments(twice=True),
    "segments without a name": segments(name=""),
    "description": facts(
        lambda d: [(i.name, i.index_type, i.num_rows_indexed, len(i.segments)) for i in d.describe_indices()],
        BTREE, MORE,
    ),
    "statistics": facts(
        lambda d: [d.index_statistics("id_idx")[n] for n in ("index_type", "num_indexed_rows", "num_unindexed_rows")],
        BTREE, MORE,
    ),
    "statistics of an unknown index": facts(lambda d: d.index_statistics("q")),
    "covered fragments": facts(covered, BTREE, MORE),
    "covered after optimisation": facts(covered, BTREE, MORE, optimized()),
    "optimised by name": facts(covered, BTREE, MORE, optimized(index_names=["id_idx"])),
    "optimised by an unknown name": facts(covered, BTREE, optimized(index_names=["q"])),
    "optimised without merging": facts(covered, BTREE, MORE, optimized(num_indices_to_merge=0)),
    "retrained": facts(covered, BTREE, MORE, optimized(retrain=True)),
    "nothing to optimise": facts(lambda d: [d.version, covered(d)], BTREE, optimized()),
    "index after a compaction": facts(
        lambda d: [covered(d), d.count_rows("id > 290")],
        BTREE, lambda d: (d.optimize if hasattr(d, "optimize") else d).compact_files(),
    ),
    "index after an overwrite": facts(
        lambda d: d.list_indices(), BTREE, lambda d: d.insert(d.take([0]), mode="overwrite")
    ),
    "index after a rename": facts(
        lambda d: [d.list_indices()[0]["fields"], d.count_rows("z = 5")],
        BTREE, lambda d: d.alter_columns({"path": "id", "name": "z"}),
    ),
    "index of a dropped column": facts(
        lambda d: d.list_indices(), BTREE, lambda d: d.drop_columns(["id"])
    ),
    "index of a column of another type": facts(
        lambda d: [d.list_indices(), d.count_rows("id = 5")],
        BTREE, lambda d: d.alter_columns({"path": "id", "data_type": pa.int32()}),
    ),
    "centroids": facts(
        lambda d: d.centroids(column="v").type,
        lambda d: d.create_index("v", "IVF_FLAT", num_partitions=2),
    ),
    "centroids of no index": facts(lambda d: d.centroids(column="v")),
}  # fmt: skip
CASES = [Case("indexes", name, run) for name, run in RUNS.items()]
