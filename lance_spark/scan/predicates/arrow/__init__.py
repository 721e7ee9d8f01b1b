"""Conditions that are given as expressions of Arrow (`pyarrow.compute.Expression`).

| module | content |
| --- | --- |
| `condition` | the condition, which Arrow itself evaluates |
| `evaluation` | how Arrow evaluates it: whole, or in parts |
| `tree` | the tree of an expression, from the bytes of its pickle |
| `bounds` | a predicate that indexes and statistics understand, and that keeps all of its rows |
"""
