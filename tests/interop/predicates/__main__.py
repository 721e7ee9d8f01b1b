"""Random predicates for some time: ``python -m tests.interop.predicates --first 0 --predicates
50000``. Prints counts of outcomes, refusals by reason and every difference; exits with 1 after a
difference.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

import lance_spark
from tests.interop.predicates.harness import BATCH, Harness, Report
from tests.support.spark.processes import JAVA_OPTIONS, environment


def main() -> int:
    """Run the predicates of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.predicates")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--predicates", type=int, default=2000)
    parser.add_argument(
        "--minutes", type=float, default=24 * 60.0, help="begin no batch after so many"
    )
    parser.add_argument(
        "--jobs", type=float, default=0.01, help="share that goes through Spark jobs"
    )
    parser.add_argument(
        "--families",
        default="",
        help="families of columns that most predicates are about: hours,span",
    )
    arguments = parser.parse_args()
    session = _session()
    end = time.monotonic() + 60 * arguments.minutes
    total = Report()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        families = [family for family in arguments.families.split(",") if family]
        harness = Harness(session, path, jobs=arguments.jobs, families=families)
        for seed in range(arguments.first, arguments.first + -(-arguments.predicates // BATCH)):
            if time.monotonic() > end:
                break
            report = harness.random_batch(seed)
            for failure in report.failures:
                print(failure, flush=True)
            total.add(report)
            print(
                f"seed {seed}: {total.predicates} predicates, {len(total.failures)} differ",
                flush=True,
            )
    print(total)
    session.stop()
    return 1 if total.failures else 0


def _session() -> SparkSession:
    os.environ.update(environment())
    builder = SparkSession.builder.master("local[2]").appName("predicates")
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    lance_spark.enable(session)
    return session


if __name__ == "__main__":
    sys.exit(main())
