"""The Spark data source: the only package that imports pyspark.

Parameters and attributes that mean the same in all modules are described here only:

| name | meaning |
| --- | --- |
| `dataset` | the version that a change is planned on |
| `table` | that version, or a reference by which executors open it; row addresses belong to it |
| `table`, if it is a text | name of the table in errors |
| `schema` | schema of the table |
| `step` | name of a step of a job, for users |
| `tag` | suffix of the names of the files that the tasks of a job write |
| `names` | for each column of the batches, the column of the table that it is written to |
| `options` | options of the read, the write or the commit |
"""
