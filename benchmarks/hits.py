"""43 queries of one wide table of web hits, on a Lance table and on the same table in Parquet.

    python benchmarks/hits.py [--scale 1] [--rounds 3] [--only 1,6,14]

The table is made up, in the manner of ClickBench: 100 columns, a million rows at scale 1, skewed
ids, long strings, many columns that hardly vary. The queries are of the same kinds as the 43 of that
benchmark. Ties are decided by a key, so that both formats have one answer. Spark writes both tables
from the same rows, in eight files, sorted by site and time. The tables stay in `build/hits` for the
next run.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import lance_spark
from benchmarks import report
from benchmarks import spark as bench
from benchmarks.measuring import ROOT
from benchmarks.tpc import FORMATS, compare, print_sizes

ROWS = 1_000_000
#: Rows that are made at once.
CHUNK = 500_000
FIRST_SECOND = 1_372_636_800
SECONDS = 31 * 86_400
WORDS = ["river", "stone", "lamp", "train", "paper", "glass", "winter", "yellow", "market"]
WORDS += ["horse", "cloud", "garden"]
#: Columns that hardly any query reads: small integers, of which most are zero.
FILLERS = 60

Ints = npt.NDArray[np.int64]


def skewed(rng: np.random.Generator, rows: int, count: int, power: float = 3.0) -> Ints:
    """Return numbers below a count, the small ones far more often."""
    return (count * rng.random(rows) ** power).astype(np.int64)


def mixed(numbers: Ints) -> Ints:
    """Return numbers that look like hashes of numbers."""
    return numbers * np.int64(0x1E3779B97F4A7C15) ^ (numbers >> 7)


def texts(pattern: str, numbers: Ints, empty: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return a text for each number, or an empty one."""
    distinct, indices = np.unique(numbers, return_inverse=True)
    values = [
        pattern.format(
            number,
            word=WORDS[number % 12],
            other=WORDS[number // 12 % 12],
            third=WORDS[number // 144 % 12],
        )
        for number in distinct.tolist()
    ]
    if empty is not None:
        values.append("")
        indices = np.where(empty, len(values) - 1, indices)
    return pa.array(values).take(pa.array(indices))


def hits(number: int, rows: int, total: int) -> pa.Table:
    """Return a part of the rows: that of a number."""
    rng = np.random.default_rng(number)
    seconds = FIRST_SECOND + rng.integers(0, SECONDS, rows)
    user = skewed(rng, rows, max(total // 4, 10), 2.0)
    site = skewed(rng, rows, 6_000)
    page = skewed(rng, rows, max(total // 3, 10), 2.5)
    source = skewed(rng, rows, max(total // 4, 10), 2.5)
    phrase = skewed(rng, rows, max(total // 8, 10), 2.0)
    no_phrase = rng.random(rows) < 0.87
    engine = np.where(no_phrase, 0, 1 + skewed(rng, rows, 40))
    adverts = np.where(rng.random(rows) < 0.97, 0, 1 + skewed(rng, rows, 18))
    no_phone = rng.random(rows) < 0.94
    width = np.array([0, 800, 1024, 1280, 1366, 1440, 1600, 1920])[skewed(rng, rows, 8, 1.5)]
    second = pa.array(seconds * 1_000_000).cast(pa.timestamp("us", "UTC"))
    address = mixed(skewed(rng, rows, max(total // 5, 10), 2.0)).astype(np.int32)
    columns: dict[str, pa.Array] = {
        "watch_id": pa.array(mixed(np.arange(rows) + number * CHUNK + 1)),
        "user_id": pa.array(mixed(user + 1)),
        "event_time": second,
        "event_date": pa.array((seconds // 86_400).astype(np.int32)).cast(pa.date32()),
        "site_id": pa.array(site.astype(np.int32)),
        "client_ip": pa.array(address),
        "region_id": pa.array(skewed(rng, rows, 5_000).astype(np.int32)),
        "url": texts("http://{word}.example/{other}/{third}/page?id={}&from=search", page),
        "url_hash": pa.array(mixed(page + 3)),
        "title": texts("{word} {other} {third} - the {word} shop, no. {}", page // 2),
        "referer": texts(
            "http://www.{word}.example/find/{other}?q={third}+{}", source, rng.random(rows) < 0.4
        ),
        "referer_hash": pa.array(mixed(source + 5)),
        "search_phrase": texts("{word} {third} {}", phrase, no_phrase),
        "search_engine_id": pa.array(engine.astype(np.int16)),
        "advert_engine_id": pa.array(adverts.astype(np.int16)),
        "traffic_source_id": pa.array((skewed(rng, rows, 10) - 1).astype(np.int16)),
        "phone_model": texts("{word} {}", skewed(rng, rows, 160), no_phone),
        "phone": pa.array(np.where(no_phone, 0, skewed(rng, rows, 80)).astype(np.int16)),
        "screen_width": pa.array(width.astype(np.int16)),
        "screen_height": pa.array((width // 16 * 9).astype(np.int16)),
        "window_width": pa.array((width - rng.integers(0, 300, rows)).clip(0).astype(np.int16)),
        "window_height": pa.array(rng.integers(300, 1_000, rows).astype(np.int16)),
        "is_refresh": pa.array((rng.random(rows) < 0.1).astype(np.int16)),
        "is_link": pa.array((rng.random(rows) < 0.05).astype(np.int16)),
        "is_download": pa.array((rng.random(rows) < 0.01).astype(np.int16)),
        "is_counted": pa.array((rng.random(rows) < 0.95).astype(np.int16)),
        "browser": texts("{word}", skewed(rng, rows, 12)),
        "browser_version": pa.array(skewed(rng, rows, 40).astype(np.int16)),
        "language": texts("{word}", skewed(rng, rows, 9)),
        "system": pa.array(skewed(rng, rows, 60).astype(np.int16)),
        "age": pa.array(skewed(rng, rows, 80, 1.0).astype(np.int16)),
        "sex": pa.array(skewed(rng, rows, 3, 1.0).astype(np.int16)),
        "income": pa.array(skewed(rng, rows, 5).astype(np.int16)),
        "send_ms": pa.array(skewed(rng, rows, 30_000, 6.0).astype(np.int32)),
        "dns_ms": pa.array(skewed(rng, rows, 3_000, 6.0).astype(np.int32)),
        "connect_ms": pa.array(skewed(rng, rows, 3_000, 6.0).astype(np.int32)),
        "response_ms": pa.array(skewed(rng, rows, 10_000, 6.0).astype(np.int32)),
        "local_time": pa.array((seconds + 7_200) * 1_000_000).cast(pa.timestamp("us", "UTC")),
        "session_id": pa.array(mixed(user * 7 + seconds // 3_600)),
        "price": pa.array(np.where(rng.random(rows) < 0.99, 0, rng.integers(1, 10**6, rows))),
    }
    for filler in range(FILLERS):
        share, count = 0.02 * (filler % 20), 2 + 7 * filler
        values = np.where(rng.random(rows) < share, skewed(rng, rows, count), 0)
        columns[f"detail_{filler:02}"] = pa.array(values.astype(np.int32))
    return pa.table(columns)


def write_table(spark: Any, folder: Path, rows: int) -> None:
    """Write the table in both formats, unless an earlier run wrote it."""
    done = folder / "done"
    if done.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    made = folder / "made"
    made.mkdir(parents=True)
    for number, start in enumerate(range(0, rows, CHUNK)):
        part = hits(number, min(CHUNK, rows - start), rows)
        pq.write_table(part, made / f"{number}.parquet", compression="lz4")
    frame = spark.read.parquet(str(made)).repartitionByRange(8, "event_time")
    frame = frame.sortWithinPartitions("site_id", "event_time")
    for name in FORMATS:
        frame.write.format(name).mode("overwrite").save(str(folder / name / "hits"))
    shutil.rmtree(made)
    done.touch()


#: Filters of the last queries: some days of a large site.
SITE = (
    "site_id = 3 AND event_date BETWEEN date'2013-07-05' AND date'2013-07-28' "
    "AND is_counted = 1 AND is_refresh = 0"
)
SUMS = ", ".join(f"sum(screen_width + {number})" for number in range(90))
QUERIES = dict(
    enumerate(
        [
            "SELECT count(*) FROM hits",
            "SELECT count(*) FROM hits WHERE advert_engine_id <> 0",
            "SELECT sum(advert_engine_id), count(*), avg(screen_width) FROM hits",
            "SELECT avg(user_id) FROM hits",
            "SELECT count(DISTINCT user_id) FROM hits",
            "SELECT count(DISTINCT search_phrase) FROM hits",
            "SELECT min(event_date), max(event_date) FROM hits",
            "SELECT advert_engine_id, count(*) n FROM hits WHERE advert_engine_id <> 0 "
            "GROUP BY 1 ORDER BY n DESC, 1",
            "SELECT region_id, count(DISTINCT user_id) n FROM hits "
            "GROUP BY 1 ORDER BY n DESC, 1 LIMIT 10",
            "SELECT region_id, sum(advert_engine_id), count(*) n, avg(screen_width), "
            "count(DISTINCT user_id) FROM hits GROUP BY 1 ORDER BY n DESC, 1 LIMIT 10",
            "SELECT phone_model, count(DISTINCT user_id) n FROM hits WHERE phone_model <> '' "
            "GROUP BY 1 ORDER BY n DESC, 1 LIMIT 10",
            "SELECT phone, phone_model, count(DISTINCT user_id) n FROM hits "
            "WHERE phone_model <> '' GROUP BY 1, 2 ORDER BY n DESC, 1, 2 LIMIT 10",
            "SELECT search_phrase, count(*) n FROM hits WHERE search_phrase <> '' "
            "GROUP BY 1 ORDER BY n DESC, 1 LIMIT 10",
            "SELECT search_phrase, count(DISTINCT user_id) n FROM hits WHERE search_phrase <> '' "
            "GROUP BY 1 ORDER BY n DESC, 1 LIMIT 10",
            "SELECT search_engine_id, search_phrase, count(*) n FROM hits "
            "WHERE search_phrase <> '' GROUP BY 1, 2 ORDER BY n DESC, 1, 2 LIMIT 10",
            "SELECT user_id, count(*) n FROM hits GROUP BY 1 ORDER BY n DESC, 1 LIMIT 10",
            "SELECT user_id, search_phrase, count(*) n FROM hits "
            "GROUP BY 1, 2 ORDER BY n DESC, 1, 2 LIMIT 10",
            # Any ten groups: only their number is one answer.
            "SELECT count(*) FROM (SELECT user_id, search_phrase, count(*) n FROM hits "
            "GROUP BY 1, 2 LIMIT 10)",
            "SELECT user_id, minute(event_time) m, search_phrase, count(*) n FROM hits "
            "GROUP BY 1, 2, 3 ORDER BY n DESC, 1, 2, 3 LIMIT 10",
            "SELECT user_id FROM hits WHERE user_id = 5312251635946354202",
            "SELECT count(*) FROM hits WHERE url LIKE '%winter%'",
            "SELECT search_phrase, min(url), count(*) n FROM hits WHERE url LIKE '%winter%' "
            "AND search_phrase <> '' GROUP BY 1 ORDER BY n DESC, 1 LIMIT 10",
            "SELECT search_phrase, min(url), min(title), count(*) n, count(DISTINCT user_id) "
            "FROM hits WHERE title LIKE '%horse%' AND url NOT LIKE '%.cloud.%' "
            "AND search_phrase <> '' GROUP BY 1 ORDER BY n DESC, 1 LIMIT 10",
            "SELECT * FROM hits WHERE url LIKE '%winter%' ORDER BY event_time, watch_id LIMIT 10",
            "SELECT search_phrase FROM hits WHERE search_phrase <> '' "
            "ORDER BY event_time, watch_id LIMIT 10",
            "SELECT search_phrase FROM hits WHERE search_phrase <> '' "
            "ORDER BY search_phrase LIMIT 10",
            "SELECT search_phrase FROM hits WHERE search_phrase <> '' "
            "ORDER BY event_time, search_phrase LIMIT 10",
            "SELECT site_id, avg(length(url)) l, count(*) n FROM hits WHERE url <> '' "
            "GROUP BY 1 HAVING n > 1000 ORDER BY l DESC, 1 LIMIT 25",
            r"SELECT regexp_replace(referer, '^https?://(?:www\\.)?([^/]+)/.*$', '$1') k, "
            "avg(length(referer)) l, count(*) n, min(referer) FROM hits WHERE referer <> '' "
            "GROUP BY 1 HAVING n > 1000 ORDER BY l DESC, 1 LIMIT 25",
            f"SELECT {SUMS} FROM hits",
            "SELECT search_engine_id, client_ip, count(*) n, sum(is_refresh), avg(screen_width) "
            "FROM hits WHERE search_phrase <> '' GROUP BY 1, 2 ORDER BY n DESC, 1, 2 LIMIT 10",
            "SELECT watch_id, client_ip, count(*) n, sum(is_refresh), avg(screen_width) "
            "FROM hits WHERE search_phrase <> '' GROUP BY 1, 2 ORDER BY n DESC, 1, 2 LIMIT 10",
            "SELECT watch_id, client_ip, count(*) n, sum(is_refresh), avg(screen_width) "
            "FROM hits GROUP BY 1, 2 ORDER BY n DESC, 1, 2 LIMIT 10",
            "SELECT url, count(*) n FROM hits GROUP BY 1 ORDER BY n DESC, 1 LIMIT 10",
            "SELECT 1, url, count(*) n FROM hits GROUP BY 1, 2 ORDER BY n DESC, 2 LIMIT 10",
            "SELECT client_ip, client_ip - 1, client_ip - 2, client_ip - 3, count(*) n FROM hits "
            "WHERE client_ip > 0 GROUP BY 1, 2, 3, 4 ORDER BY n DESC, 1 LIMIT 10",
            f"SELECT url, count(*) n FROM hits WHERE {SITE} AND url <> '' "
            "GROUP BY 1 ORDER BY n DESC, 1 LIMIT 10",
            f"SELECT title, count(*) n FROM hits WHERE {SITE} AND title <> '' "
            "GROUP BY 1 ORDER BY n DESC, 1 LIMIT 10",
            f"SELECT url, count(*) n FROM hits WHERE {SITE} AND is_link <> 0 "
            "AND is_download = 0 GROUP BY 1 ORDER BY n DESC, 1 LIMIT 10 OFFSET 5",
            "SELECT traffic_source_id, search_engine_id, advert_engine_id, CASE WHEN "
            "search_engine_id = 0 AND advert_engine_id = 0 THEN referer ELSE '' END src, url dst, "
            f"count(*) n FROM hits WHERE {SITE} GROUP BY 1, 2, 3, 4, 5 "
            "ORDER BY n DESC, 1, 2, 3, 4, 5 LIMIT 10 OFFSET 5",
            f"SELECT url_hash, event_date, count(*) n FROM hits WHERE {SITE} "
            "AND traffic_source_id IN (-1, 6) GROUP BY 1, 2 ORDER BY n DESC, 1, 2 LIMIT 10",
            f"SELECT window_width, window_height, count(*) n FROM hits WHERE {SITE} "
            "AND traffic_source_id = 0 GROUP BY 1, 2 ORDER BY n DESC, 1, 2 LIMIT 10 OFFSET 9",
            f"SELECT date_trunc('minute', event_time) m, count(*) n FROM hits WHERE {SITE} "
            "GROUP BY 1 ORDER BY 1 LIMIT 10 OFFSET 90",
        ],
        1,
    )
)


def main() -> None:
    parser = report.argument_parser(__doc__, data=None)
    parser.add_argument("--only", default="", help="numbers of queries, with commas between them")
    arguments = parser.parse_args()
    spark = bench.session()
    lance_spark.enable(spark)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    folder = ROOT / "build" / "hits" / f"{arguments.scale:g}"
    write_table(spark, folder, round(arguments.scale * ROWS))
    print_sizes(folder)
    compare(spark, folder, QUERIES, arguments.only, arguments.rounds)


if __name__ == "__main__":
    main()
