"""The parser of texts alone, without Spark: for any text, the result is an answer or a
`LanceError`.

What holds for a row is false for its opposite, and a predicate that was pickled keeps the same
rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lance_spark.errors import LanceError
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.sql import SqlSettings, parse_predicate
from tests.interop.predicates import tables
from tests.interop.predicates.grammar import Predicates
from tests.interop.predicates.listed import SUBJECTS
from tests.interop.predicates.sessions import SESSIONS, ZONE
from tests.support.cells import number_of

TEXTS = number_of(300, 50_000)
BATCH = 500


@pytest.fixture(scope="module")
def rows() -> pa.RecordBatch:
    return tables.rows("2.2").combine_chunks().to_batches()[0]


def texts(seed: int, names: list[str]) -> Iterator[str]:
    if seed < len(SESSIONS):
        for subject in SUBJECTS.values():
            yield from subject
    source = Predicates(seed, names)
    for _ in range(BATCH):
        yield str(source.predicate())


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(max(TEXTS // BATCH, len(SESSIONS))))
def test_texts(rows: pa.RecordBatch, seed: int) -> None:
    schema = Schema.from_arrow(rows.schema)
    settings = SqlSettings.from_conf({ZONE: "UTC", **SESSIONS[seed % len(SESSIONS)].conf})
    answered = 0
    for text in texts(seed, rows.schema.names):
        try:
            predicate = parse_predicate(text, schema, settings)
            kept, rejected = predicate.holds(rows), predicate.negated().holds(rows)
        except LanceError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {text!r}") from error
        answered += 1
        assert not pc.any(pc.and_(kept, rejected)).as_py(), f"seed {seed}: {text!r}"
        unpickled = pickle.loads(pickle.dumps(predicate))
        assert unpickled.holds(rows).equals(kept), f"seed {seed}: {text!r}"
    assert answered > BATCH // 3
