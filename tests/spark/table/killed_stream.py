"""A process with a stream to a table: Spark is killed after the first commit, or runs to the end.

python killed_stream.py SOURCE TABLE CHECKPOINT [PID_FILE]
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lance_spark.spark.datasource import LanceDataSource
from lance_spark.spark.streaming.writer import LanceStreamWriter
from tests.support.spark.settings import INTERPRETED


class KillingWriter(LanceStreamWriter):
    """Commits a batch, and kills Spark before it writes the checkpoint."""

    def commit(self, messages: list[Any], batchId: int) -> None:  # type: ignore[override]
        super().commit(messages, batchId)
        os.kill(int(Path(os.environ["SPARK_PID_FILE"]).read_text()), signal.SIGKILL)


class KillingSource(LanceDataSource):
    """The source with a `KillingWriter`, by another name: Spark 4.0 cannot replace a source."""

    @classmethod
    def name(cls) -> str:
        return "killing_lance"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from lance_spark.spark.options.write import WriteOptions

        return KillingWriter(WriteOptions.parse(self.options), schema, overwrite)


def main(source: str, table: str, checkpoint: str, pid_file: str | None = None) -> None:
    if pid_file is not None:
        os.environ["SPARK_PID_FILE"] = pid_file
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = (
        builder.config("spark.driver.host", "localhost")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config(map=INTERPRETED)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    if pid_file is not None:
        pid = spark._jvm.java.lang.ProcessHandle.current().pid()
        Path(pid_file).write_text(str(pid))
    spark.dataSource.register(KillingSource)
    frame = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet(source)
    name = LanceDataSource.name() if pid_file is None else KillingSource.name()
    writer = frame.writeStream.format(name).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start(table)
    if not query.awaitTermination(300):
        sys.exit(3)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
