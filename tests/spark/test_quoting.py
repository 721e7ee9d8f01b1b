"""Stars that stand for columns are told from factors, counts, and those of subqueries."""

from __future__ import annotations

import pytest

from lance_spark.spark.quoting import has_star


@pytest.mark.parametrize(
    "text",
    [
        "*",
        "t.*",
        "`t`.*",
        "hash(*)",
        "to_json(struct(a, t.*))",
        "coalesce( * ) IS NULL",
        "struct(* EXCEPT (a))",
        "count(DISTINCT *)",
        "count(t.*)",
        "1.5*hash(*)",
        "named_struct('(', 1, 'b', struct(t.*))",
        "a IN (SELECT 1) AND hash(*) = 1",
    ],
)
def test_stars_of_columns(text: str) -> None:
    assert has_star(text)


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a*2",
        "1.*2",
        "2.*t.a",
        "t1.a * 2",
        "f(a)*2",
        "(a)*(b)",
        # Columns have these texts.
        "*(a, 10)",
        "struct(*(a, 2) AS b, *(b, *(a, 3)) AS c)",
        "count(*) OVER (PARTITION BY a)",
        "a IN (SELECT count(*) FROM v)",
        "a IN (SELECT * FROM v)",
        "EXISTS (SELECT v.* FROM v)",
        "EXISTS (WITH q AS (SELECT * FROM v) SELECT * FROM q)",
        "(SELECT max(hash(*)) FROM v) = hash(a)",
        "concat('(*', a)",
        "s = 'it\\'s (*'",
        "s = 'a''(*'",
        '"(*"',
        "`(*`*3",
        "/* (* */ a",
        "a -- (*\n * 2",
    ],
)
def test_other_stars(text: str) -> None:
    assert not has_star(text)
