"""Expressions: values that are computed from columns for each row, as Spark computes them.

| module | subject |
| --- | --- |
| `node` | expressions: columns, literals, calls of kernels, choices |
| `value_predicates` | conditions on computed values |
| `arithmetic` | numbers: operators, `abs`, `floor` |
| `strings` | `lower`, `substring`, `concat`, patterns |
| `dates` | parts of dates, `date_trunc`, sums with days and intervals |
| `intervals` | the text and the value of intervals |
| `conditionals` | `coalesce`, `if`, `CASE` |
| `casts` | casts |
| `functions` | the table of functions by their names in SQL |
| `kernels` | the computation of arrays; one module for each of the modules above |

The modules beside `kernels` check the types of arguments and choose the type of the result by
Spark's rules. An expression of literals is computed by the same kernels, on one row. Statistics do
not apply to computed values: a computed condition skips no rows.
"""
