"""Loads modules before Spark's Python processes fork: workers do not load and collect them again.

Spark starts a process for each of its worker modules, which forks workers. After each task a worker
collects garbage; frozen objects are left out, which saves a third of the time of a short write.
Batches of columns go to shared memory although they are small, so that tests read from it.
Only the session of the tests' own process has this folder on its path.
"""

import gc
import importlib
import sys

#: Bytes from which on batches go to shared memory. Others are sent.
SHARED_BYTES = 4096
COLUMNAR = "lance_spark.spark.pushdown.columnar"
READ = ("lance_spark.spark.options.read", "lance_spark.spark.read.reader")
WRITE = ("lance_spark.spark.options.write", "lance_spark.spark.write.writer")
#: What Spark runs in the process in which all steps of planning run.
STEPS = (
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
)
#: Modules to load, by the worker module of a process. The process that looks up names of data
#: sources needs none of them.
MODULES = {
    "pyspark.worker": ("pandas", *READ, *WRITE),
    "pyspark_lance.worker": (*STEPS, *READ, *WRITE),
    "pyspark.sql.worker.create_data_source": READ,
    "pyspark.sql.worker.data_source_pushdown_filters": READ,
    "pyspark.sql.worker.plan_data_source_read": READ,
    "pyspark.sql.worker.write_into_data_source": WRITE,
    "pyspark.sql.worker.commit_data_source_write": WRITE,
}

if "pyspark.daemon" in sys.orig_argv:
    worker = sys.orig_argv[-1]
    if worker in MODULES:
        for module in (worker, *MODULES[worker]):
            importlib.import_module(module)
        if worker == "pyspark.worker":
            importlib.import_module(COLUMNAR).SHARED_BYTES = SHARED_BYTES
        gc.collect()
        gc.freeze()
