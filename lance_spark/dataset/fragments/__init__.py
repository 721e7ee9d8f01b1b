"""Fragments of a `Dataset`, for programs that distribute reads and writes themselves.

| module | content |
| --- | --- |
| `fragment` | `DatasetFragment`: reads one fragment, and makes its changed metadata |
| `columns` | columns of one fragment: new ones, and new values |
| `write` | `write_fragments`: files of new fragments without a commit |
| `operations` | `LanceOperation`: operations by pylance's names and arguments |
"""
