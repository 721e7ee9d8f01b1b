"""Scans of a `Dataset`: the scanner, and the interfaces by which Arrow's engines read.

| module | content |
| --- | --- |
| `options` | the keywords of scans, counts, plans and searches, each declared once |
| `scanner` | `Scanner`: a planned read that gives batches, a table, a reader or a count |
| `request` | all arguments of a scan, checked |
| `children` | children of structs as columns |
| `computed` | columns that are expressions of others |
| `ordered` | rows in the order of some columns |
| `statistics` | what a scan has read |
| `batches` | limits, and the sizes of batches |
| `arrow_dataset` | a `pyarrow.dataset.Dataset`, for engines that push filters down to one |
"""
