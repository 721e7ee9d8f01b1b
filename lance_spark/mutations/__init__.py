"""Mutations: changes of rows, columns and files, each planned, run as tasks, and committed once.

Parameters and attributes that mean the same in all modules are described here only:

| name | meaning |
| --- | --- |
| `table` | the version that the mutation is planned on; row addresses belong to it |
| `read_version` | the number of that version |
| `schema`, `file_version` or `version` | schema of the table, and version of its data files |
| `base_paths` | base paths of the table, by id |
| `options` | options of the commit |
| `runner` | runs the tasks; this process by default |
| `tag` | tag in the names of the files that tasks write, by which `sweep` finds them |
| `placement` | the targets of new files |
| `first` | index of the target of the first file; see `FragmentWriter` |
"""
