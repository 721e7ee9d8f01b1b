"""What pylance's own tests try, as cases that pylance and this package run.

A case calls the same methods by the same names on both, and returns what a caller sees. See
`outcomes` for the results of a comparison; `python -m tests.interop.shadow` prints the table.

| module | cases |
| --- | --- |
| `client` | both packages behind one interface |
| `outcomes` | runs and compares cases |
| `cases` | the cases, by topic |
| `expected` | cases that are not the same, with the reason |
"""
