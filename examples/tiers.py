"""Spark moves old fragments to a cold tier. Changed rows stay in their tier.

python examples/tiers.py [FOLDER]
"""

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from lance_spark import BasePath, LanceTable

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
path = str(folder / "events.lance")
# A real cold tier is a bucket of another class, region or cloud, as "s3://archive/events".
cold = str(folder / "cold")

spark = SparkSession.builder.master("local[2]").appName("tiers").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

days = spark.range(0, 3000, 1, 3).select("id", (F.col("id") / 1000).cast("int").alias("day"))
options = {"initial_bases": json.dumps([{"path": cold, "name": "cold"}])}
days.write.format("lance").options(**options).mode("append").save(path)

table = LanceTable.forPath(spark, path)
metrics = table.move_fragments("cold", "day < 2").first()
print(f"{metrics.fragments_added} fragments moved")

# A changed row of the cold tier stays in the cold tier.
table.update("id = 7", {"day": "9"}, mode="rows")
table.optimize().executeCompaction()
for base in table.bases().collect():
    print(f"{base.name or 'the table'}: {base.num_fragments} fragments")

# New base paths can be added later, and changes can be sent to them.
table.add_bases([BasePath(0, str(folder / "frozen"), False, "frozen")])
table.with_target_bases(["frozen"]).optimize(sort_by="day")
print({base.name: base.num_fragments for base in table.bases().collect()})
spark.stop()
