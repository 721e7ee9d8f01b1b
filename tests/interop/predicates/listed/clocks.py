"""TIME and day-time intervals: their literals, coercion, and what is computed of them."""

from __future__ import annotations

_OPS = ("=", ">", ">=", "<", "<=", "<>", "<=>")
_TIMES = ("time_us", "time_ns", "time_ms", "time_s")
_SPANS = ("span", "span_ns", "span_s")

HOURS = [
    *(f"time_us {op} TIME '12:34:56.123456'" for op in _OPS),
    *(f"{name} < TIME '12:00:00'" for name in _TIMES),
    *(f"{name} = TIME '12:34:56'" for name in _TIMES),
    *(f"{name} >= TIME '12:34:56.7891'" for name in _TIMES),
    *(f"{name} IS NULL" for name in _TIMES),
    *(f"{name} <=> NULL" for name in _TIMES),
    *(f"time_us {op} time_ns" for op in _OPS),
    *("time_ms = time_s", "time_s < time_us", "time_ns > time_ms", "time_ms <=> time_ns"),
    *(
        f"time_us = '{text}'"
        for text in ("12:34:56", "T12:34:56.1", "9:5:3", " 12:30 ", "24:00", "x")
    ),
    *(
        "'12:00' < time_s",
        "time_s BETWEEN '09:00' AND '17:00:00.5'",
        "time_us NOT BETWEEN '12' AND '13'",
    ),
    *(
        "time_us BETWEEN TIME '09:00' AND TIME '12:34:56.1'",
        "time_ns NOT BETWEEN time_us AND time_ms",
    ),
    *("time_us IN (TIME '00:00', TIME '12:30', NULL)", "time_us NOT IN (TIME '00:00', NULL)"),
    *(
        "time_ns IN ('12:30', TIME '13:00')",
        "time_s IN (time_us, TIME '12:00')",
        "time_ms NOT IN ('12:30')",
    ),
    *(
        "time_us = TIME '23:59:59.999999'",
        "time_us > TIME '23:59:59.999999'",
        "time_us < TIME '0:0'",
    ),
    *(
        "time_s <= TIME '23:59:59.999999'",
        "time_ms > TIME '23:59:59.998999'",
        "time_us = TIME '1:000'",
    ),
    *(
        "time_us = TIME '12:34:56.1234560'",
        "time_us = '12:34:56.1234569'",
        "time_us = TIME '12:60'",
    ),
    *(
        "time_us = TIME '1:00 PM'",
        "time_us = TIME '12:34:56Z'",
        "time_us = TIME '2024-01-31 12:00:00'",
    ),
    *(
        "time_us = 5",
        "time_us = 12.5",
        "time_us = true",
        "time_us = X'00'",
        "time_us = DATE '2024-01-31'",
    ),
    *(
        "time_us < at",
        "time_us < clock",
        "time_us < span",
        "time_us = INTERVAL '1' HOUR",
        "time_us = number",
    ),
    *(
        "word = time_us",
        "time_us < word",
        "NOT time_us < TIME '12:00'",
        "time_us IS TRUE",
        "isnan(time_us)",
    ),
    *(
        "hour(time_us) = 12",
        "minute(time_ns) > 30",
        "second(time_ms) = 56",
        "extract(hour from time_s) < 12",
    ),
    *(
        "extract(second from time_us) > 30",
        "year(time_us) = 2024",
        "day(time_us) = 1",
        "to_date(time_us) = day",
    ),
    *(
        "cast(time_us as string) = '12:34:56.1'",
        "cast(time_ns as string) LIKE '12:%'",
        "time_s LIKE '12%'",
    ),
    *(
        "cast(word as time) = time_us",
        "try_cast(word as time) IS NULL",
        "cast('12:30' as time) = time_s",
    ),
    *(
        "cast(time_us as time(0)) = TIME '12:34:56'",
        "cast(time_us as int) = 45296",
        "cast(at as time) = time_us",
    ),
    *(
        "coalesce(time_us, TIME '0:0') = TIME '0:0'",
        "nullif(time_us, time_ns) IS NULL",
        "if(flag, time_us, time_ns) > TIME '12:00'",
    ),
    *(
        "CASE WHEN flag THEN time_us ELSE '12:00' END < TIME '13:00'",
        "nvl(time_s, time_us) = time_us",
    ),
    *(
        "time_us + INTERVAL '1' HOUR > TIME '13:00'",
        "time_us - time_ns = INTERVAL '0' SECOND",
        "-time_us = time_us",
    ),
    *(
        "time '12:34' = TIME'12:34:00'",
        "TIME '12:00' < TIME '13:00'",
        "TIME '12:00' = NULL",
        "`time_us` = time '12:30'",
    ),
    *(
        "time_trunc('hour', time_us) = TIME '12:00'",
        "length(time_us) = 8",
        "concat(time_us, '') = '12:30:00'",
    ),
]
SPANS = [
    *(f"span {op} INTERVAL '1' DAY" for op in _OPS),
    *(f"span {op} INTERVAL '1 02:03:04.123456' DAY TO SECOND" for op in _OPS),
    *(f"{name} > INTERVAL '25' HOUR" for name in _SPANS),
    *(f"{name} = INTERVAL '1 02:03:04' DAY TO SECOND" for name in _SPANS),
    *(f"{name} <= INTERVAL '0.999999' SECOND" for name in _SPANS),
    *(f"{name} IS NOT NULL" for name in _SPANS),
    *(f"{name} = NULL" for name in _SPANS),
    *(f"span {op} span_ns" for op in _OPS),
    *("span_s < span", "span_ns = span_s", "span_s <=> span", "span_ns > span"),
    *(
        "span = INTERVAL '24' HOUR",
        "span = INTERVAL '1440' MINUTES",
        "span = INTERVAL 86400 SECONDS",
    ),
    *(
        "span = INTERVAL '1 0' DAY TO HOUR",
        "span = INTERVAL '1 0:0' DAY TO MINUTE",
        "span = INTERVAL '24:0' HOUR TO MINUTE",
    ),
    *(
        "span = INTERVAL '24:0:0' HOUR TO SECOND",
        "span = INTERVAL '1440:0' MINUTE TO SECOND",
        "span = interval '1 day'",
    ),
    *(
        "span = INTERVAL '-1 02:03:04' DAY TO SECOND",
        "span < INTERVAL -'1 02:03:04' DAY TO SECOND",
        "span = INTERVAL -'-1' DAY",
    ),
    *(
        "span = INTERVAL -1 DAY",
        "span = - INTERVAL '1' DAY",
        "span = -(INTERVAL '1' DAY)",
        "span = + INTERVAL '1' DAY",
    ),
    *(
        "span < INTERVAL '-0.000001' SECOND",
        "span < INTERVAL '-1.0000019' SECOND",
        "span_s < INTERVAL -0.5 SECONDS",
    ),
    *(
        "span = INTERVAL '1 day 2 hours 3 minutes 4 seconds'",
        "span >= INTERVAL 1 DAY 2 HOURS",
        "span > INTERVAL '1' DAY '1' SECOND",
    ),
    *(
        "span = INTERVAL '106751991 04:00:54.775807' DAY TO SECOND",
        "span > INTERVAL '106751991' DAY",
    ),
    *(
        "span = INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND",
        "span_ns < INTERVAL '106751991' DAY",
    ),
    *(
        "span > INTERVAL '106751992' DAY",
        "span > INTERVAL '1 24' DAY TO HOUR",
        "span > INTERVAL '1:60' HOUR TO MINUTE",
    ),
    *(
        "span > INTERVAL '1' DAY TO SECOND",
        "span > INTERVAL '1 2' DAYS TO HOURS",
        "span > INTERVAL '1.5' DAY",
        "span > INTERVAL '5'",
    ),
    *(
        "span = INTERVAL '1' MONTH",
        "span = INTERVAL '1-2' YEAR TO MONTH",
        "span = INTERVAL '1 month 2 days'",
        "span > INTERVAL '1' DAY TO MONTH",
    ),
    *(
        "span = 5",
        "span = '1'",
        "span = '1 00:00:00'",
        "span = true",
        "span < day",
        "span = time_us",
        "span IN ('x')",
    ),
    *(
        "span IN (INTERVAL '1' DAY, INTERVAL '25' HOUR, NULL)",
        "span NOT IN (INTERVAL '0' DAY)",
        "span IN (span_ns, span_s)",
    ),
    *(
        "span BETWEEN INTERVAL '0' DAY AND INTERVAL '25' HOUR",
        "span NOT BETWEEN span_s AND INTERVAL '365' DAYS",
    ),
    *(
        "INTERVAL '1' DAY = INTERVAL '24' HOUR",
        "INTERVAL 1 DAY < INTERVAL '1' MONTH",
        "INTERVAL '1' DAY IN (INTERVAL '24' HOUR)",
    ),
    *(
        "INTERVAL '12' MONTH = INTERVAL '1' YEAR",
        "INTERVAL '1' DAY <=> NULL",
        "INTERVAL '1' DAY IS NULL",
        "INTERVAL '1' DAY",
    ),
    *(
        "coalesce(span, INTERVAL '1' DAY) = INTERVAL '1' DAY",
        "nullif(span, INTERVAL '0' DAY) IS NULL",
        "if(flag, span, span_s) > INTERVAL '1' HOUR",
    ),
    *(
        "CASE WHEN flag THEN span ELSE INTERVAL '1' DAY END < INTERVAL '2' DAY",
        "isnull(span)",
        "isnan(span)",
        "span IS TRUE",
    ),
    *(
        "span + INTERVAL '1' DAY > INTERVAL '2' DAY",
        "span * 2 > INTERVAL '2' DAY",
        "-span > INTERVAL '0' DAY",
        "abs(span) > INTERVAL '1' DAY",
    ),
    *(
        "cast(span as string) LIKE '%DAY%'",
        "cast(span as int) = 1",
        "cast(span as interval day) = INTERVAL '1' DAY",
        "extract(day from span) = 1",
    ),
    *(
        "at - clock > INTERVAL '1' DAY",
        "day - DATE '2024-01-01' > INTERVAL '1' DAY",
        "at + span > TIMESTAMP '2024-01-31 00:00:00'",
    ),
    *(
        "day + INTERVAL '1-2' YEAR TO MONTH > DATE '2024-01-31'",
        "at - INTERVAL '1 02:03:04.5' DAY TO SECOND < TIMESTAMP '2024-01-31 00:00:00'",
    ),
    *(
        "clock + INTERVAL 1.5 SECONDS = TIMESTAMP_NTZ '1970-01-01 00:00:01.5'",
        "day + INTERVAL '24' HOUR > DATE '2024-01-31'",
    ),
]
