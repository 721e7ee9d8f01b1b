"""The local API and Spark on an object store with delays: this package, by s3fs and by obstore,
against pylance; and Spark on the store against Spark on the local disk.

    python benchmarks/stores.py [--delay 5,30,100] [--mbps 80] [--only filter,append] [--rounds 3]
                                [--no-spark | --only-spark] [--scale 1.0]

The server is `benchmarks/slow_store.py`. Each client has a process of its own, which has already
sent requests to the server; the clients take turns. Each run opens a copy of the table that no
client has read before. The tables show the fastest run, with its requests, the most requests at the
same time, and the bytes of all requests. Spark runs each query twice on a copy.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import report, store_cases
from benchmarks.measuring import ROOT, run_in_turns, seconds_of
from benchmarks.slow_store import BUCKET
from benchmarks.store_cases import CASES, CLIENTS
from benchmarks.tables import write_once

#: Delay of the Spark part, in milliseconds.
SPARK_DELAY = 30


class Run(NamedTuple):
    """A run of a case: seconds, and what the server counted."""

    seconds: float
    result: int
    requests: int
    most_at_once: int
    megabytes: float

    def text(self) -> list[str]:
        return [
            f"{self.seconds:.2f} s",
            f"{self.requests} ({self.most_at_once})",
            f"{self.megabytes:.1f} MB",
        ]


class Server:
    """The server of objects, in a process of its own."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.options = {
            "aws_access_key_id": "key",
            "aws_secret_access_key": "secret",
            "aws_region": "us-east-1",
            "aws_endpoint": self.url,
            "allow_http": "true",
        }
        self._copies = 0

    def control(self, name: str, **query: object) -> Any:
        """Send a request of the benchmark's own."""
        url = f"{self.url}/_control/{name}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(urllib.request.Request(url, method="POST")) as answer:
            return json.load(answer)

    def upload(self, folder: Path, name: str) -> None:
        """Put the files of a table."""
        for path in folder.rglob("*"):
            if path.is_file():
                key = f"{name}/{path.relative_to(folder).as_posix()}"
                url = f"{self.url}/{BUCKET}/{urllib.parse.quote(key)}"
                request = urllib.request.Request(url, data=path.read_bytes(), method="PUT")
                urllib.request.urlopen(request).close()

    @contextmanager
    def copy_of(self, table: str) -> Iterator[str]:
        """Yield the URI of a copy of a table, which is removed afterwards."""
        self._copies += 1
        name = f"copy{self._copies}-{table}"
        self.control("copy", source=f"{table}/", target=f"{name}/")
        yield f"s3://{BUCKET}/{name}"
        self.control("remove", prefix=f"{name}/")


@contextmanager
def serving(delay: float, mbps: float) -> Iterator[Server]:
    """Start a server."""
    command = [sys.executable, str(ROOT / "benchmarks/slow_store.py"), "0"]
    process = subprocess.Popen(
        [*command, "--delay", str(delay), "--mbps", str(mbps)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield Server(json.loads(process.stdout.readline())["port"])
    finally:
        process.kill()
        process.wait()


class Worker:
    """A client in a process of its own; see `store_cases.main`."""

    def __init__(self, client: str, server: Server, stack: ExitStack) -> None:
        self._server = server
        warm = stack.enter_context(server.copy_of("warm"))
        arguments = [client, json.dumps(server.options), warm]
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "benchmarks/store_cases.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(self._stop)
        self._read()

    def run(self, name: str) -> Run:
        """Run a case on a new copy of its table."""
        assert self._process.stdin is not None
        with self._server.copy_of(CASES[name].table) as uri:
            self._server.control("counts")
            self._process.stdin.write(json.dumps({"case": name, "uri": uri}) + "\n")
            self._process.stdin.flush()
            seconds, result = self._read()
            counts = self._server.control("counts")
        return _run(seconds, result, counts)

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a client has ended; its error is above")
        return json.loads(line)

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()


def _run(seconds: float, result: int, counts: dict[str, Any]) -> Run:
    total = counts["bytes_sent"] + counts["bytes_received"]
    return Run(seconds, result, counts["requests"], counts["most_at_once"], total / 1e6)


def local_api(server: Server, delay: float, names: Sequence[str], rounds: int) -> None:
    """Measure the cases, and print their table."""
    lines: list[list[str]] = []
    ratios: dict[str, list[float]] = {client: [] for client in CLIENTS[1:]}
    with ExitStack() as stack:
        workers = {client: Worker(client, server, stack) for client in CLIENTS}
        for name in names:

            def measured(client: str, name: str = name) -> Callable[[], Run]:
                return lambda: workers[client].run(name)

            runs = run_in_turns(
                {client: measured(client) for client in CLIENTS},
                CASES[name].rounds or rounds,
                warm_up=False,
            )
            best = {client: min(found) for client, found in runs.items()}
            results = {run.result for run in best.values()}
            if len(results) > 1:
                raise RuntimeError(f"{name}: the clients have different results, {results}")
            line = [name, *best["pylance"].text()]
            for client, speeds in ratios.items():
                speeds.append(best["pylance"].seconds / best[client].seconds)
                line += [*best[client].text(), f"{speeds[-1]:.2f}"]
            lines.append(line)
            print(" | ".join(line), file=sys.stderr, flush=True)
    means = ["geometric mean", "", "", ""]
    slowest = ["slowest", "", "", ""]
    for speeds in ratios.values():
        mean = math.exp(sum(map(math.log, speeds)) / len(speeds))
        means += ["", "", "", f"{mean:.2f}"]
        slowest += ["", "", "", f"{min(speeds):.2f}"]
    header = ["case", "pylance", "requests (at once)", "bytes"]
    for client in ratios:
        header += [client, "requests (at once)", "bytes", "speed / pylance"]
    print(f"\n{delay:g} ms\n")
    print(report.table(header, [*lines, means, slowest]), flush=True)


# -- Spark -----------------------------------------------------------------------------------------
#: Receives two frames, and a function that appends a frame to the first table.
Query = Callable[[Any, Any, Callable[[Any], None]], object]


def _spark_cases() -> dict[str, tuple[tuple[str, ...], Query]]:
    """Return the queries of Spark and their tables."""
    from pyspark.sql import functions as f

    from benchmarks.spark import drain

    return {
        "count": (("plain",), lambda plain, _, __: plain.count()),
        "sum of a column": (("plain",), lambda plain, _, __: plain.select(f.sum("b")).collect()),
        "all columns": (("plain",), lambda plain, _, __: drain(plain)),
        "vectors": (("big",), lambda big, _, __: drain(big.select("v"))),
        "filter": (
            ("plain",),
            lambda plain, _, __: plain.where("a = 77 and b < 0.1").select("id", "s").collect(),
        ),
        "B-tree": (("big",), lambda big, _, __: big.where("id = 1234").select("id", "s").collect()),
        "bitmap": (("big",), lambda big, _, __: big.where("g = 'word7'").select("id").collect()),
        "limit": (("plain",), lambda plain, _, __: plain.limit(10).collect()),
        "many fragments": (
            ("many",),
            lambda many, _, __: many.select(f.sum("a"), f.count("s"), f.max("s")).collect(),
        ),
        "append": (
            ("many",),
            lambda many, _, append: append(
                many.sparkSession.range(20_000, 30_000).selectExpr(
                    "id", "id a", "cast(id as string) s"
                )
            ),
        ),
        "join": (
            ("plain", "many"),
            lambda plain, many, _: (
                plain.join(many.where("a < 10").select("id"), "id").select(f.sum("b")).collect()
            ),
        ),
    }


def spark_part(server: Server, folder: Path, names: Sequence[str], rounds: int) -> None:
    """Measure queries of Spark on the local disk and on the store, and print their table."""
    import lance_spark
    from benchmarks.spark import session

    spark = session()
    lance_spark.enable(spark)

    def options_of(place: str) -> dict[str, str]:
        if place == "local":
            return {}
        options = {**server.options, "file_system": "obstore" if place == "obstore" else "fsspec"}
        return {f"storage_options.{name}": value for name, value in options.items()}

    places = ("local", *CLIENTS[1:])

    def run(place: str, tables: Sequence[str], query: Query) -> tuple[Run, Run]:
        """Run a query on new copies of its tables, and once more."""
        with ExitStack() as stack:
            if place == "local":
                copies = Path(stack.enter_context(TemporaryDirectory()))
                uris = [str(shutil.copytree(folder / name, copies / name)) for name in tables]
            else:
                uris = [stack.enter_context(server.copy_of(table)) for table in tables]

            def append(frame: Any) -> None:
                writer = frame.write.format("lance").options(**options_of(place))
                writer.mode("append").save(uris[0])

            def action() -> None:
                reader = spark.read.format("lance").options(**options_of(place))
                frames = [reader.load(uri) for uri in uris]
                query(frames[0], frames[-1], append)

            runs = []
            for _ in range(2):
                server.control("counts")
                seconds = seconds_of(action)
                runs.append(_run(seconds, 0, server.control("counts")))
            return runs[0], runs[1]

    cases = _spark_cases()
    lines = []
    for name in names:
        tables, query = cases[name]
        runs = run_in_turns(
            {place: (lambda p=place, t=tables, q=query: run(p, t, q)) for place in places},
            rounds,
        )
        for number, title in enumerate((name, f"{name}, again")):
            best = {place: min(pair[number] for pair in found) for place, found in runs.items()}
            line = [title, f"{best['local'].seconds:.2f} s"]
            for place in places[1:]:
                more = best[place].seconds - best["local"].seconds
                line += [*best[place].text(), f"{more:.2f} s"]
            lines.append(line)
            print(" | ".join(line), file=sys.stderr, flush=True)
    header = ["query", "local disk"]
    for place in places[1:]:
        header += [place, "requests (at once)", "bytes", "more than local"]
    print(f"\nSpark, {SPARK_DELAY} ms\n")
    print(report.table(header, lines), flush=True)
    spark.stop()


def main() -> None:
    parser = report.argument_parser(__doc__)
    parser.add_argument("--delay", default="5,30,100", help="milliseconds, with commas")
    parser.add_argument("--mbps", type=float, default=80, help="megabytes per second")
    parser.add_argument("--only", default="", help="names of cases, with commas")
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--only-spark", action="store_true")
    arguments = parser.parse_args()
    chosen = [name.strip() for name in arguments.only.split(",") if name.strip()]
    known = [*CASES, *_spark_cases()]
    for name in chosen:
        if name not in known:
            raise SystemExit(f"--only {name}: must be one of {', '.join(dict.fromkeys(known))}")

    def build(path: Path) -> None:
        path.mkdir(parents=True)
        store_cases.build(path, arguments.scale)

    folder = write_once(arguments.data / f"stores-{arguments.scale:g}", build)
    with serving(0, 1e6) as server:
        for table in ("big", "plain", "many", "warm"):
            server.upload(folder / table, table)
        if not arguments.only_spark:
            for delay in map(float, arguments.delay.split(",")):
                server.control("set", delay=delay, mbps=arguments.mbps)
                names = [name for name in CASES if not chosen or name in chosen]
                local_api(server, delay, names, arguments.rounds)
        if not arguments.no_spark:
            server.control("set", delay=SPARK_DELAY, mbps=arguments.mbps)
            names = [name for name in _spark_cases() if not chosen or name in chosen]
            spark_part(server, folder, names, arguments.rounds)


if __name__ == "__main__":
    main()
