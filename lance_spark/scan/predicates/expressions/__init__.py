"""Values that are computed from columns, row by row, as Spark computes them.

| module | subject |
| --- | --- |
| `node` | expressions: columns, literals, calls of functions, choices |
| `holds` | conditions on computed values |
| `arithmetic` | numbers: operators, `abs`, `floor` |
| `strings` | `lower`, `substring`, `concat`, patterns |
| `dates` | parts of dates, `date_trunc`, days and intervals that are added |
| `zones` | local times of many instants at once |
| `conditionals` | `coalesce`, `if`, `CASE` |
| `casts` | casts of whole arrays |
| `functions` | the table of functions by their names in SQL |

Each module has the types that Spark gives a result beside the kernel that computes it with Arrow or NumPy. An expression of literals
is computed by the same kernels, on one row. Statistics serve none of these: a computed condition skips no rows.
"""
