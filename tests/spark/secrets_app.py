"""Reads and writes a table with secrets among the options, and prints every plan; the event log
is on.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    import lance_spark
    from tests.support.spark.processes import logged_session

    uri, log, text, shown = sys.argv[1:]
    options = json.loads(text)
    spark = logged_session(log)
    rows = spark.range(3)
    # What Spark does without us.
    store_options = {name: options[name] for name in ("region", "endpoint")}
    for name in ("aws_access_key_id", "aws_secret_access_key", "azure_storage_account_key"):
        store_options[name] = shown
    # A write refuses settings of base paths that the table does not have.
    bases = json.dumps([{"path": path} for path in json.loads(options["base_store_params"])])
    first = rows.write.format("lance").options(**store_options, initial_bases=bases)
    first.mode("append").save(uri)
    spark.read.format("lance").options(**store_options).load(uri).createOrReplaceTempView("before")
    lance_spark.enable(spark)
    rows.write.format("lance").options(**options).mode("overwrite").save(uri)
    frame = spark.read.format("lance").options(**options).load(uri).where("id > 0")
    frame.createOrReplaceTempView("after")
    frame.explain(True)
    print(frame._jdf.queryExecution().toString())
    print("rows", sorted(row.id for row in frame.collect()))
    try:
        spark.read.format("lance").options(**options, version="77").load(uri).collect()
    except Exception as error:
        print("no version", error)
    spark.stop()


if __name__ == "__main__":
    main()
