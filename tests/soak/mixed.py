"""Everything at once: SQL, `Dataset`, streams, pylance and older releases of it change the same tables.

python -m tests.soak.mixed [--seconds 60] [--rounds 2] [--sql 2] [--own 1] [--pylance 1]
    [--releases 4.0.1,8.0.1] [--alone] [--streams spark|called] [--seed 0] [--folder F]

Each writer knows the rows that it must have, and compares them while it works (`clients`). Beside
them, tables are compacted, indexed, tagged, branched and cleaned up (`own_clients`), and streams read
and write (`streams`). After each round, all rows are compared, and the next round continues with the
same tables, checkpoints and accounts. With `--alone`, only this package writes: files of version
2.3, and overlays. Prints what happened, at last as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance

import lance_spark
from lance_spark.errors import CorruptTableError
from tests.soak.clients import COUNTER, LOG, Account, Writer, differences, events, logged
from tests.soak.old_values import is_left_by_pylance
from tests.soak.own_clients import (
    CATALOG,
    INDEXES,
    SqlOverlayWriter,
    SqlWriter,
    create_index,
    other_answers,
)
from tests.soak.releases import python_of
from tests.soak.streams import CalledStreams, SparkStreams, Streams, wrong_streams

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Clients:
    """Who changes the tables.

    Attributes
    ----------
    sql, own, pylance : int
        Writers of SQL, by `Dataset`, and by pylance.
    releases : sequence of str
        Older releases of pylance, with one writer each.
    maintenance : bool
    streams : str
        "spark": queries of Spark; "called": without Spark; or empty.
    alone : bool
        Whether only this package writes, files of version 2.3 and overlays.
    """

    sql: int = 0
    own: int = 0
    pylance: int = 0
    releases: Sequence[str] = ()
    maintenance: bool = True
    streams: str = ""
    alone: bool = False

    def processes(self) -> list[tuple[Path, str]]:
        """Return the interpreter and the client of each process."""
        python = Path(sys.executable)
        own = "overlays" if self.alone else "own"
        interpreters = [(python, own)] * self.own + [(python, "pylance")] * self.pylance
        if self.maintenance:
            interpreters.append((python, "maintenance"))
            if not self.alone:
                interpreters.append((python, "pylance-maintenance"))
        return interpreters


def create(folder: Path, clients: Clients, columns: Iterable[str] = INDEXES) -> None:
    """Create the tables, with an index of each of these columns of `events`."""
    version: Any = "2.3" if clients.alone else "2.1"
    path = folder / "events.lance"
    rows = events([COUNTER], COUNTER, [0])
    lance_spark.write_dataset(rows, path, enable_stable_row_ids=True, data_storage_version=version)
    lance_spark.write_dataset(LOG.empty_table(), folder / "log.lance", data_storage_version=version)
    for column in columns:
        create_index(str(path), column)


def run_mixed(
    spark: Any, folder: Path, seconds: float, clients: Clients, *, rounds: int = 1, seed: int = 0
) -> tuple[Counter[str], list[str]]:
    """Change tables by several clients, and check them after each round.

    Parameters
    ----------
    spark : SparkSession or None
        For writers of SQL, and for streams of Spark.
    seconds : float
        Of all rounds.

    Returns
    -------
    Counter, list of str
        How many changes there were, and what is wrong.
    """
    if spark is not None:
        lance_spark.enable(spark, CATALOG, root=str(folder))
    create(folder, clients)
    streams: Streams | None = None
    if clients.streams == "spark":
        streams = SparkStreams(folder, seed, spark)
    elif clients.streams:
        streams = CalledStreams(folder, seed)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(rounds):
        wrong = _round(spark, folder, seconds / rounds, clients, streams, seed + number)
        counts["rounds"] += 1
        if wrong:
            break
    for account in accounts_in(folder):
        counts.update(account.counts)
        counts["rows in log"] += account.logged
        counts["increments"] += account.increments
    if streams is not None:
        counts.update(streams.counts)
    counts["versions"] = lance_spark.open_dataset(folder / "events.lance").version
    return counts, wrong


def _round(
    spark: Any, folder: Path, seconds: float, clients: Clients, streams: Streams | None, seed: int
) -> list[str]:
    processes = []
    commands = [(*process, "tests.soak.own_clients") for process in clients.processes()]
    commands += [(python_of(r), "pylance", "tests.soak.clients") for r in clients.releases]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    for number, (python, client, module) in enumerate(commands, start=clients.sql):
        command = [str(python), "-m", module, "--client", client, "--folder", str(folder)]
        command += ["--number", str(number), "--seed", str(seed), "--seconds", str(seconds)]
        processes.append(
            subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    sql: type[SqlWriter] = SqlOverlayWriter if clients.alone else SqlWriter
    writers: list[Writer] = [sql(folder, number, seed, spark) for number in range(clients.sql)]
    threads = [threading.Thread(target=writer.run, args=(seconds,)) for writer in writers]
    if streams is not None:
        threads.append(threading.Thread(target=streams.run, args=(seconds,)))
    for thread in threads:
        thread.start()
    wrong = []
    for (python, client, _), process in zip(commands, processes, strict=True):
        output = process.communicate()[0]
        if process.returncode:
            wrong.append(f"{client} of {python} ended with {process.returncode}: {output[-2_000:]}")
    for thread in threads:
        thread.join()
    for writer in writers:
        writer.account.store(folder)
    if streams is not None:
        wrong += streams.errors
        if not wrong:
            streams.drain()
            wrong += streams.errors
    return wrong or wrong_tables(folder, clients)


def accounts_in(folder: Path) -> list[Account]:
    """Return the accounts of all writers."""
    numbers = sorted(
        int(path.stem.removeprefix("account")) for path in folder.glob("account*.json")
    )
    return [Account.load(folder, number) for number in numbers]


def wrong_tables(folder: Path, clients: Clients) -> list[str]:
    """Return what is wrong: rows that are lost, doubled or other, and answers by indexes."""
    accounts = accounts_in(folder)
    wrong = [text for account in accounts for text in account.errors]
    rows = {COUNTER: sum(account.increments for account in accounts)}
    for account in accounts:
        rows.update(account.rows)
    dataset = lance_spark.open_dataset(folder / "events.lance")
    try:
        dataset.validate()
    except CorruptTableError as error:
        # The rows tell more.
        wrong.append(str(error))
    readers = {"this package": dataset.to_table(["id", "n", "s", "v", "_rowid"])}
    if not clients.alone:
        theirs = lance.dataset(str(folder / "events.lance"))
        theirs.validate()
        readers["pylance"] = theirs.to_table(columns=["id", "n", "s", "v"], with_row_id=True)
    for name, table in readers.items():
        result = table.to_pydict()
        wrong += differences(
            f"events, {name}", rows, list(zip(result["id"], result["n"], strict=True))
        )
        derived = events(result["id"], 0, result["n"])
        if not table.select(["s", "v"]).equals(derived.select(["s", "v"])):
            wrong.append(f"events, {name}: other texts or vectors")
        if len(set(result["_rowid"])) != len(result["_rowid"]):
            wrong.append(f"events, {name}: a row id occurs twice")
    for index in dataset.describe_indices():
        check = dataset.check_index(index.name) if index.field_names else None
        if check and not check.is_valid and (clients.alone or not is_left_by_pylance(check)):
            wrong.append(f"{check}")
    wrong += other_answers(dataset)
    log = {row: None for a in accounts for row in logged(a.number, 0, a.logged)["id"].to_pylist()}
    found_log = lance_spark.open_dataset(folder / "log.lance").to_table(["id"])["id"].to_pylist()
    wrong += differences("log", log, [(row, None) for row in found_log])
    if clients.streams and not wrong:
        wrong += wrong_streams(folder, accounts, rows)
    return wrong


def main() -> int:
    """Run a load; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.mixed")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sql", type=int, default=2)
    parser.add_argument("--own", type=int, default=1)
    parser.add_argument("--pylance", type=int, default=1)
    parser.add_argument("--releases", default="")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--streams", choices=["spark", "called"], default="spark")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keeps the tables there")
    options = parser.parse_args()
    clients = Clients(
        sql=options.sql,
        own=options.own,
        pylance=0 if options.alone else options.pylance,
        releases=() if options.alone else tuple(filter(None, options.releases.split(","))),
        streams=options.streams,
        alone=options.alone,
    )
    spark = _session() if clients.sql or clients.streams == "spark" else None
    with tempfile.TemporaryDirectory(prefix="mixed") as temporary:
        folder = options.folder or Path(temporary)
        counts, wrong = run_mixed(
            spark, folder, options.seconds, clients, rounds=options.rounds, seed=options.seed
        )
    if spark is not None:
        spark.stop()
    for text in wrong:
        print(text)
    print(json.dumps({**dict(sorted(counts.items())), "lost, doubled or other": len(wrong)}))
    return min(len(wrong), 1)


def _session() -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        # A Python process that crashes leaves the place where it did.
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        "spark.python.worker.faulthandler.enabled": "true",
    }
    spark = SparkSession.builder.master("local[4]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


if __name__ == "__main__":
    raise SystemExit(main())
