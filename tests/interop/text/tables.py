"""Tables with text, random queries, and the answers of both clients."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import lance
import lance.query as oracle
import pyarrow as pa

import lance_spark
from lance_spark import query as own
from lance_spark.indexes.text.search import TextScanTask


def vocabulary(rng: random.Random) -> list[str]:
    """Return words, the first of which are frequent."""
    words = ["".join(rng.choice("abcdé") for _ in range(rng.randrange(1, 6))) for _ in range(150)]
    words += ["the", "and", "Running", "cats"]
    return [word for place, word in enumerate(words) for _ in range(1 + 200 // (place + 1))]


def rows(rng: random.Random, first: int, count: int, words: list[str]) -> pa.Table:
    def texts(dtype: pa.DataType) -> pa.Array:
        values = []
        for _ in range(count):
            choice = rng.random()
            text = " ".join(rng.choice(words) for _ in range(int(rng.expovariate(1 / 12))))
            values.append(None if choice < 0.03 else "" if choice < 0.06 else text)
        return pa.array(values, dtype)

    columns = {"s": pa.string(), "t": pa.large_string(), "u": pa.string()}
    return pa.table(
        {
            "id": range(first, first + count),
            **{name: texts(dtype) for name, dtype in columns.items()},
        }
    )


def write_indexed(
    path: Path,
    rng: random.Random,
    words: list[str],
    *,
    stable_row_ids: bool,
    fragment_rows: int = 500,
    num_segments: int = 3,
) -> None:
    """Write 3,000 rows with full-text indexes of both columns, which have several segments."""
    lance.write_dataset(
        rows(rng, 0, 3000, words),
        str(path),
        max_rows_per_file=fragment_rows,
        enable_stable_row_ids=stable_row_ids,
    )
    dataset = lance_spark.open_dataset(str(path))
    for column in "st":
        dataset = dataset.create_scalar_index(
            column, "INVERTED", with_position=True, num_segments=num_segments
        )


def change(path: Path, rng: random.Random, words: list[str], merge: int | None) -> None:
    """Add, delete and move rows after the indexes were made; `merge` adds or merges segments."""
    dataset = lance.write_dataset(
        rows(rng, 3000, 900, words), str(path), mode="append", max_rows_per_file=500
    )
    if merge is not None:
        dataset.optimize.optimize_indices(num_indices_to_merge=merge)
    lance.dataset(str(path)).delete("id % 7 = 3")
    lance.write_dataset(
        rows(rng, 3900, 400, words), str(path), mode="append", max_rows_per_file=300
    )
    lance_spark.open_dataset(str(path)).delete("id % 50 = 1")
    lance.dataset(str(path)).update({"s": "'abc the updated cats'"}, where="id % 100 = 5")


def random_query(
    rng: random.Random, words: list[str], depth: int = 0, phrases: bool = True
) -> own.FullTextQuery:
    def some(count: int) -> str:
        return " ".join(rng.choice(words) for _ in range(count))

    choice, column = rng.random(), rng.choice("sst")
    if depth < 2 and choice < 0.12:
        clauses = [(rng.choice(list(own.Occur)[:2]), random_query(rng, words, depth + 1, phrases))]
        for _ in range(rng.randrange(3)):
            clauses.append(
                (rng.choice(list(own.Occur)), random_query(rng, words, depth + 1, phrases))
            )
        return own.BooleanQuery(clauses)
    if depth < 2 and choice < 0.2:
        parts = (
            random_query(rng, words, depth + 1, phrases),
            random_query(rng, words, depth + 1, phrases),
        )
        return own.BoostQuery(*parts, negative_boost=rng.choice([0.5, 0.1]))
    operator = rng.choice(list(own.FullTextOperator))
    if choice < 0.3:
        return own.MultiMatchQuery(
            some(2), ["s", "t"], boosts=rng.choice([None, [1.0, 3.0]]), operator=operator
        )
    if phrases and choice < 0.55:
        return own.PhraseQuery(some(rng.randrange(1, 4)), column, slop=rng.choice([0, 0, 1, 2, 5]))
    return own.MatchQuery(
        some(rng.randrange(1, 5)),
        rng.choice("sstu"),
        operator=operator,
        boost=rng.choice([1.0, 2.5]),
        fuzziness=rng.choice([0, 0, None, 1, 2]),
        prefix_length=rng.choice([0, 1, 2]),
        max_expansions=rng.choice([50, 50, 7, 2]),
    )


def of_oracle(query: Any) -> Any:
    """Return a query as a query of pylance."""
    match query:
        case own.MatchQuery():
            return oracle.MatchQuery(
                query.query,
                query.column,
                boost=query.boost,
                fuzziness=query.fuzziness,
                max_expansions=query.max_expansions,
                operator=oracle.FullTextOperator(query.operator.value),
                prefix_length=query.prefix_length,
            )
        case own.PhraseQuery():
            return oracle.PhraseQuery(query.query, query.column, slop=query.slop)
        case own.MultiMatchQuery():
            boosts = None if query.boosts is None else list(query.boosts)
            operator = oracle.FullTextOperator(query.operator.value)
            return oracle.MultiMatchQuery(
                query.query, list(query.columns), boosts=boosts, operator=operator
            )
        case own.CombinedFieldsQuery():
            return oracle.CombinedFieldsQuery(
                query.query,
                list(query.columns),
                boosts=list(query.boosts or ()),
                operator=oracle.FullTextOperator(query.operator.value),
            )
        case own.BoostQuery():
            parts = of_oracle(query.positive), of_oracle(query.negative)
            return oracle.BoostQuery(*parts, negative_boost=query.negative_boost)
        case own.BooleanQuery():
            return oracle.BooleanQuery(
                [(oracle.Occur(occur.value), of_oracle(part)) for occur, part in query.queries]
            )
    return query


def oracle_scores(path: Path, query: Any, **options: Any) -> dict[int, float]:
    if "filter" in options:
        options["prefilter"] = True
    return _scores(
        lance.dataset(str(path)).to_table(
            full_text_query=of_oracle(query), columns=["id", "_score"], **options
        )
    )


def flat_plan(path: Path, column: str) -> bool:
    """Return whether pylance reads rows for a query that its index does not cover."""
    query = oracle.MatchQuery("abc", column)
    plan = lance.dataset(str(path)).scanner(full_text_query=query).explain_plan()
    assert "MatchQuery" in plan
    return "FlatMatchQuery" in plan


def own_scores(path: Path, query: Any, **options: Any) -> dict[int, float]:
    dataset = lance_spark.open_dataset(str(path))
    scores = _scores(dataset.to_table(["id", "_score"], full_text_query=query, **options))
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    return scores


def _scores(table: pa.Table) -> dict[int, float]:
    scores = table["_score"].to_pylist()
    return dict(zip(table["id"].to_pylist(), scores, strict=True))


def tasks_of(
    dataset: Any, query: Any, target: int, *, fast_search: bool = False, **options: Any
) -> list[TextScanTask]:
    """Return the tasks of a search, whose shares aim at a number of postings."""
    search = dataset._reader.plan_text(query, fast_search=fast_search)
    conditions = dataset._reader.conditions(None, options.pop("filter", None))
    schema = dataset._reader.text_schema(["id"])
    return [
        dataset._reader.text_task(share, schema, conditions, conditions, **options)
        for share in search.shares(target)
    ]


def read_tasks(tasks: list[TextScanTask]) -> dict[int, float]:
    """Return the rows of tasks, as executors get them, and check that no row is read twice."""
    copies = pickle.loads(pickle.dumps(tasks))
    batches = [batch for task in copies for batch in task.batches()]
    table = pa.Table.from_batches(batches, pa.schema([("id", pa.int64()), ("_score", "float")]))
    ids = table["id"].to_pylist()
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, table["_score"].to_pylist(), strict=True))
