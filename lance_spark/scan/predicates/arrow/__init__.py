"""Conditions that are given as expressions of Arrow (`pyarrow.compute.Expression`).

| module | content |
| --- | --- |
| `condition` | the condition, which Arrow itself evaluates |
| `tree` | the tree of an expression, from the bytes of its pickle |
| `bounds` | a predicate that indexes and statistics understand, and that keeps all of its rows |
"""
