"""Predicates in SQL keep the rows that Spark keeps, at every entry point of this package.

| module | what |
| --- | --- |
| `columns`, `tables` | the rows, as Lance tables of every file version and as Parquet for Spark |
| `literals`, `values`, `grammar` | random predicates: the same ones for a seed |
| `listed` | predicates that tests of other projects try, by subject |
| `sessions` | settings of Spark that change what a text means |
| `judge`, `oracle` | what Spark keeps, many predicates in one call and one job |
| `ways` | the ways in which a predicate comes into this package |
| `harness` | compares, counts, shrinks and reports |
| `test_predicates` | a few thousand predicates |
"""
