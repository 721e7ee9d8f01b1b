"""Expressions: values that are computed from columns for each row, as Spark computes them.

| module | subject |
| --- | --- |
| `node` | expressions: columns, literals, calls of kernels, choices |
| `arithmetic` | numbers: operators, `abs`, `floor` |
| `strings` | `lower`, `substring`, `concat`, patterns |
| `dates` | intervals, parts of dates, `date_trunc`, sums with days and intervals |
| `conditionals` | conditions on computed values, `coalesce`, `if`, `CASE` |
| `casts` | casts |
| `json_functions` | functions of JSON columns, as in pylance |
| `kernels` | the computation of arrays; one module for each of the modules above |

The modules beside `kernels` check the types of arguments and choose the type of the result by
Spark's rules. An expression of literals is computed by the same kernels, on one row. Statistics do
not apply to computed values: a computed condition skips no rows.
"""
