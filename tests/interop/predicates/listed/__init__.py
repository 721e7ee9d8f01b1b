"""Predicates that tests of other projects try, over the columns here, by subject.

The subjects are those of Spark's SQL tests (literals, predicate functions, LIKE, null semantics,
coercion of comparisons, dates and times, quoted identifiers) and of its push-down suites for
Parquet, ORC and JDBC; of Delta's deletes, updates, data skipping and replaceWhere; of Iceberg's
filters and row-level deletes; of DataFusion's predicates and pruning; of Lance's own planner and
filters.
"""

from __future__ import annotations

from tests.interop.predicates.listed.clocks import HOURS, SPANS
from tests.interop.predicates.listed.computed import ARITHMETIC, CASTS, CONDITIONALS, DATES, STRINGS
from tests.interop.predicates.listed.conditions import (
    LIKE,
    LOGIC,
    NAMES,
    NULLS,
    PREDICATE_FUNCTIONS,
)
from tests.interop.predicates.listed.lists import LISTS
from tests.interop.predicates.listed.values import COERCION, FLOATS, LITERALS, TIMES
from tests.support.spark.versions import HAS_TIME

SUBJECTS: dict[str, list[str]] = {
    "literals": LITERALS,
    "predicate functions": PREDICATE_FUNCTIONS,
    "like": LIKE,
    "nulls": NULLS,
    "coercion": COERCION,
    "floats": FLOATS,
    "times": TIMES,
    "names": NAMES,
    "logic": LOGIC,
    "arithmetic": ARITHMETIC,
    "strings": STRINGS,
    "conditionals": CONDITIONALS,
    "dates": DATES,
    "casts": CASTS,
    "lists": LISTS,
    "intervals": [text for text in SPANS if HAS_TIME or "time_" not in text],
    **({"times of day": HOURS} if HAS_TIME else {}),
}
