"""Computed values: arithmetic, functions, casts, conditionals."""

from __future__ import annotations

ARITHMETIC = [
    *(f"number {op} 3 > 1" for op in ("+", "-", "*", "/", "%", "DIV", "&", "|", "^")),
    *(
        f"tiny {op} small {comparison} 5"
        for op in ("+", "-", "*", "/", "%")
        for comparison in ("=", "<")
    ),
    *(f"single {op} 2 > 1" for op in ("+", "-", "*", "/", "%")),
    *(f"double {op} single >= 0.5" for op in ("+", "-", "*", "/", "%")),
    *(f"half {op} 2 <= 1" for op in ("+", "-", "*", "/", "%")),
    *(f"d5_2 {op} 2 > 1.5" for op in ("+", "-", "*")),
    *(f"d5_2 {op} tiny > 1.5" for op in ("+", "-", "*")),
    *(f"d10 {op} d5_2 <> 1" for op in ("+", "-", "*")),
    *(f"d18_6 {op} 0.5D > 1" for op in ("+", "-", "*", "/", "%")),
    *("-number > 5", "-tiny = 5", "- (small) <= -1", "+big = 5", "~number = -6", "~u8 < 0"),
    *("-double < 0", "-single = 0", "-d5_2 > 0", "-number = -(number)", "- - number = number"),
    *("number + number = 2 * number", "number * 2 = 10", "2 * number + 1 > 10", "big + 1 > 0"),
    *("number / 2 = 2.5", "number / 0 > 1", "double / 0 = 1", "number % 0 = 1", "5 / number > 1"),
    *("number <> 0 AND 10 / number > 1", "number = 0 OR 10 / number > 1", "10 DIV number = 2"),
    *("big DIV -1 = 1", "big % -1 = 0", "tiny % -1 = 0", "number % 2 = 0", "number % -3 = 2"),
    *("u8 + u16 > 300", "u32 * 2 > 10", "u64 - 1 > 100", "key % 10 = 5", "key * 2 < 0"),
    *("abs(number) = 5", "abs(tiny) = 127", "abs(double) < 1", "abs(d5_2) > 1", "abs(-5) = 5"),
    *("mod(number, 3) = 1", "negative(small) = 5", "positive(number) = 5", "mod(small, 0) = 1"),
    *("floor(double) = 0", "ceil(double) = 1", "ceiling(single) > 1", "floor(number) = 5"),
    *("number << 2 > 100", "number >> 1 = 2", "number >>> 1 > 0", "big << 3 = 8", "tiny >> 1 = 1"),
    *("number + 1.5 > 2", "number * 0.5 < 1", "number - 0.1 <> 0", "number + 1e0 > 5"),
    *("number + NULL > 1", "NULL + number IS NULL", "number + 1 IS NULL", "number * 2 <=> NULL"),
    *("number + 1 <=> 6", "number + 1 IS DISTINCT FROM 6", "number + 1 IN (6, 2, NULL)"),
    *("number + 1 NOT IN (6, 2)", "number + 1 BETWEEN 2 AND 6"),
    *("5 BETWEEN number - 1 AND number + 1", "number IN (number + 0, 5)", "number + 1 = big"),
    *("number + 1 > 5.5", "number + 1 < 1e30BD", "1 + 1 = 2", "5 - 7 < 0", "7 DIV 2 = 3"),
    *("7 / 2 = 3.5", "7 % 4 = 3", "1 | 2 = 3", "6 & 3 = 2", "5 ^ 1 = 4", "1 << 3 = 8"),
    *("-8 >> 1 = -4", "-8 >>> 28 = 15", "~5 = -6", "1 / 0 = 1", "1 % 0 = 1", "2147483647 + 1 > 0"),
    *("127Y + 1Y = 1", "0.1 + 0.2 = 0.3", "0.1D + 0.2D = 0.3", "1.5 * 2 = 3", "number = 1 | 4"),
    *("number = 1 << 2", "double = 1 / 2", "double > 1e300 * 1e10", "d5_2 = 1.0 + 0.05"),
    *("deep.x + 1 = 6", "deep.f * 2 = 1", "`größe` + 1 > 2", "values - 5 = 0", "`a-b` - 1 > 0"),
    *("deep.x * deep.f > 1", "deep.`in ner`.values + deep.x > 0", "number - tiny = 0"),
]
STRINGS = [
    *("lower(upper(word)) >= 't'", "upper(lower(word)) = 'SS'", "upper(word) ILIKE 'ß'"),
    *("lower(upper('ß')) = 'ss'", "lower(word) = 'abc'", "upper(word) = 'ABC'"),
    *("lower(word) = 'ä'", "upper(word) = 'SS'", "lcase(code) = 'ab'", "ucase(long_word) = 'AB'"),
    *("lower('ABC') = 'abc'", "upper(word) = word", "lower(word) LIKE 'a%'"),
    *("upper(word) IN ('A', 'B')", "lower(word) <> word", "word ILIKE 'A%'", "word ILIKE '%b'"),
    *("word NOT ILIKE 'AB_'", "ilike(word, 'aB')", "word ILIKE 'Ä'"),
    *("word ILIKE 'a!%B' ESCAPE '!'", "word ILIKE ANY ('a%', 'B%')", "word ILIKE NULL"),
    *("'Ab' ILIKE 'aB'", "length(word) = 1", "length(word) > 2", "char_length(word) = 2"),
    *("character_length(word) = 3", "len(word) = 0", "length(bytes) = 2", "length(three) = 3"),
    *("length('😀') = 1", "length(NULL) = 1", "trim(word) = 'a'", "trim(word) = word"),
    *("ltrim(word) = 'a '", "rtrim(word) = ' a'", "btrim(word) = 'a'"),
    *("trim(BOTH FROM word) = 'a'", "trim(LEADING FROM word) = 'a '"),
    "trim(TRAILING FROM word) = ' a'",
    *(
        f"substring(word, {start}, {size}) = 'b'"
        for start in (-3, -1, 0, 1, 2, 9)
        for size in (-1, 0, 1, 2)
    ),
    *("substring(word, 2) = 'b'", "substr(word, 1, 2) = 'ab'"),
    *("substring(word FROM 2 FOR 1) = 'b'", "substring(word FROM 2) = 'bc'"),
    *("substr(word, -2) = 'bc'", "substring(word, 1, 1) = '😀'", "left(word, 1) = 'a'"),
    *("right(word, 1) = 'b'", "left(word, 0) = ''", "right(word, -1) = ''", "right(word, 2) = '%'"),
    *("left(word, NULL) IS NULL", "left('abc', 2) = 'ab'", "concat(word, 'x') = 'ax'"),
    *("word || 'x' = 'ax'", "concat(word, code) = 'aa'", "'a' || word = 'ab'"),
    *("concat(word, NULL) IS NULL", "word || code || 'x' = 'aax'", "concat('a', 'b') = 'ab'"),
    *("'a' || 'b' = 'ab'", "concat(bytes, X'61') = X'6161'", "bytes || three = X'616263'"),
    *("concat(word) = 'a'", "replace(word, 'a', 'b') = 'bb'", "replace(word, 'b') = 'a'"),
    *("replace(word, '', 'x') = word", "startswith(lower(word), 'a')"),
    *("endswith(upper(word), 'B')", "contains(lower(word), 'b')", "contains(trim(word), NULL)"),
    *("startswith('abc', 'ab')", "'abc' LIKE 'a%'", "'abc' RLIKE 'b'", "'abc' NOT LIKE '_'"),
    *("lower(word) RLIKE '^a'", "trim(word) IS NULL", "trim(word) IS NOT NULL"),
    *("lower(word) <=> NULL", "coalesce(word, 'none') = 'none'"),
    *("length(trim(word)) < length(word)", "upper(deep.Text) = 'A'"),
    *("cast(number as string) = '5'", "cast(number as string) LIKE '1%'"),
    "length(cast(big as string)) = 1",
]
CONDITIONALS = [
    *("coalesce(number, 0) = 0", "coalesce(number, big, 0) = 5", "ifnull(number, -1) < 0"),
    *("nvl(tiny, 0) > 5", "coalesce(word, code) = 'a'", "coalesce(number, 0.5) < 1"),
    *("coalesce(single, 0) = 0", "coalesce(flag, true)", "coalesce(flag, other_flag, false)"),
    *("coalesce(NULL, number) = 5", "coalesce(NULL, NULL) IS NULL", "nvl(double, number) > 5"),
    *("nvl2(number, 1, 2) = 2", "nvl2(word, word, 'x') = 'x'"),
    *("coalesce(day, DATE '2024-01-31') = DATE '2024-01-31'", "nullif(number, 5) IS NULL"),
    *("nullif(word, 'a') IS NULL", "nullif(number, big) = 5", "nullif(5, 5) IS NULL"),
    *("if(number > 5, 1, 0) = 1", "if(flag, number, tiny) = 5", "if(flag, 'a', 'b') = 'a'"),
    *("if(flag, number, double) > 1", "if(number = 0, 0, 10 / number) > 1"),
    *("if(flag, true, false)", "if(NULL, 1, 2) = 2", "if(word = 'a', NULL, 1) IS NULL"),
    *("CASE WHEN number > 5 THEN 1 ELSE 0 END = 1", "CASE WHEN flag THEN number END = 5"),
    "CASE WHEN number > 5 THEN true WHEN tiny > 5 THEN false END",
    "CASE WHEN NULL THEN true ELSE false END",
    "CASE WHEN flag THEN true WHEN NULL THEN false ELSE true END",
    "CASE WHEN cast(NULL AS boolean) THEN false ELSE true END",
    *("CASE WHEN cast(NULL AS int) THEN false ELSE true END", "if(NULL, false, true)"),
    "cast(number AS boolean) = cast(NULL AS int)",
    *("cast(number AS boolean) = cast(NULL AS string)", "cast(number AS boolean) = NULL"),
    *("(flag IS NULL) = cast(NULL AS date)", "(flag IS NULL) <=> cast(NULL AS int)"),
    "(number > 5) IN (cast(NULL AS int), true)",
    "CASE number WHEN 5 THEN 'five' WHEN 0 THEN 'zero' ELSE 'other' END = 'five'",
    "CASE word WHEN 'a' THEN 1 WHEN NULL THEN 2 ELSE 3 END = 3",
    "CASE WHEN number <> 0 THEN 10 / number ELSE 0 END > 1",
    "CASE WHEN flag THEN 1 WHEN other_flag THEN 2.5 ELSE 3L END > 2",
    "CASE WHEN flag IS NULL THEN 'null' WHEN flag THEN 'yes' ELSE 'no' END <> 'no'",
    "CASE WHEN number IS NULL THEN 0 ELSE number END < 5",
    "CASE WHEN 1 = 1 THEN number ELSE 5 END = 5",
    "CASE WHEN flag THEN DATE '2024-01-31' ELSE day END = DATE '2024-01-31'",
    "CASE WHEN flag THEN CASE WHEN other_flag THEN 1 ELSE 2 END ELSE 3 END = 2",
    *("coalesce(number, 'x') = 5", "if(flag, number, 'x') = '5'", "coalesce(word, 5) = 5"),
]
DATES = [
    *(
        f"{part}({name}) = {value}"
        for name in ("day", "at", "clock", "clock_s", "at_ns", "day64")
        for part, value in (
            ("year", 2024),
            ("month", 1),
            ("day", 31),
            ("dayofmonth", 1),
            ("quarter", 4),
        )
    ),
    *(
        f"{part}({name}) >= {value}"
        for name in ("at", "clock", "clock_s", "day")
        for part, value in (("hour", 12), ("minute", 30), ("second", 15))
    ),
    *("dayofweek(day) = 1", "weekday(day) = 6", "dayofyear(at) = 31"),
    *("extract(YEAR FROM at) = 2024", "extract(HOUR FROM clock) < 5", "year('2024-01-31') = 2024"),
    *("month(DATE '2024-01-31') = 1", "hour(TIMESTAMP '2024-01-31 12:30:00') = 12"),
    *(f"cast({name} as date) = DATE '2024-01-31'" for name in ("at", "clock", "clock_s", "at_ns")),
    *(f"cast({name} as date) >= DATE '2024-03-10'" for name in ("at", "clock", "at_ns")),
    *("to_date(at) = DATE '2024-11-03'", "to_date(word) = DATE '2024-01-31'"),
    *("to_date('2024-01-31') = day", "date(clock) = day"),
    *("to_timestamp(day) = TIMESTAMP '2024-01-31 00:00:00'", "to_timestamp(clock) = at"),
    *("to_timestamp('2024-01-31 12:30:15') = at", "cast(day as timestamp) = at"),
    *("cast(clock as timestamp) < at", "cast(at as timestamp_ntz) = clock"),
    "cast(day as timestamp) > at",
    *(
        f"date_trunc('{unit}', at) = TIMESTAMP '2024-01-01 00:00:00'"
        for unit in ("YEAR", "quarter", "month", "mon", "yy")
    ),
    *(
        f"date_trunc('{unit}', at) = date_trunc('{unit}', TIMESTAMP '2024-11-03 05:30:00Z')"
        for unit in ("week", "day", "HOUR", "minute", "second")
    ),
    "date_trunc('day', clock) = TIMESTAMP '2024-01-31 00:00:00'",
    "date_trunc('day', day) = TIMESTAMP '2024-01-31 00:00:00'",
    *("trunc(day, 'MM') = DATE '2024-01-01'", "trunc(day, 'year') = DATE '2024-01-01'"),
    *("trunc(day, 'week') = DATE '2024-01-29'", "trunc(at, 'Q') IS NULL"),
    *("day + 1 = DATE '2024-02-01'", "day - 1 > DATE '2024-01-01'", "1 + day = DATE '1970-01-02'"),
    *("day + number > day", "day + tiny > day", "day = DATE '2024-01-30' + 1"),
    *("day = DATE '2024-01-31' + INTERVAL 1 DAY", "day > DATE '2024-12-31' - INTERVAL '1' YEAR"),
    *("day + INTERVAL 1 MONTH = DATE '2024-02-29'", "day - INTERVAL '1' MONTH < DATE '2024-01-01'"),
    "day + INTERVAL 7 DAYS > DATE '2024-02-01'",
    "at > TIMESTAMP '2024-01-31 12:30:15' - INTERVAL 1 HOUR",
    "at + INTERVAL 1 DAY > TIMESTAMP '2024-03-11 02:00:00'",
    "at + INTERVAL '1' HOUR = TIMESTAMP '2024-03-10 03:30:00Z'",
    "clock - INTERVAL 30 MINUTES < TIMESTAMP_NTZ '2024-01-31 12:00:15'",
    "at - INTERVAL 1 MONTH > TIMESTAMP '2024-02-01 00:00:00'",
    "clock + INTERVAL '1' YEAR > TIMESTAMP_NTZ '2024-12-31 00:00:00'",
    "at + INTERVAL '2 days 3 hours' > TIMESTAMP '2024-03-12 00:00:00'",
    *("INTERVAL 1 DAY + day = DATE '2024-02-01'", "day + INTERVAL -1 DAY = DATE '2024-01-30'"),
    *("day - INTERVAL 1 WEEK < DATE '2024-01-31'", "clock + INTERVAL 1 MILLISECOND > clock"),
    *("at - INTERVAL 1 DAY < at", "date_add(day, 1) = DATE '2024-02-01'"),
    *("date_sub(day, 1) = DATE '2024-01-30'", "datediff(day, DATE '2024-01-01') = 30"),
    *("date_diff(DATE '2024-01-31', day) > 0", "datediff(at, clock) = 0"),
    *("date_add('2024-01-30', 1) = day", "date_add(day, number) IS NULL"),
    *("cast(day as string) = '2024-01-31'", "cast(at as string) LIKE '2024-03-%'"),
    "cast(clock as string) = '2024-01-31 12:30:15.123456'",
    *("cast(clock_s as string) = '2024-01-31 12:30:15'", "cast(at_ns as string) > '2024'"),
    *("at = at_ns", "at <> at_ns", "clock = at", "at > clock", "day < at", "day <= clock"),
    *("at_ns >= clock_s", "clock <=> at_ns", "at IN (clock, TIMESTAMP '2024-01-31 12:30:15')"),
    *("clock IN (at_ns)", "at BETWEEN clock AND at_ns"),
]
CASTS = [
    *(
        f"cast({name} as {dtype}) = 5"
        for name in (
            "tiny",
            "small",
            "number",
            "big",
            "u8",
            "u64",
            "single",
            "double",
            "half",
            "d5_2",
            "d38_18",
        )
        for dtype in ("tinyint", "smallint", "int", "bigint", "float", "double")
    ),
    *(
        f"try_cast({name} as {dtype}) = 5"
        for name in ("big", "double", "d38_18", "word")
        for dtype in ("tinyint", "int", "bigint", "float")
    ),
    *(
        f"cast({name} as decimal({digits})) = 5"
        for name in ("tiny", "big", "d18_6", "d38")
        for digits in ("5, 2", "10", "38, 18")
    ),
    *(
        f"try_cast({name} as decimal({digits})) = 5"
        for name in ("tiny", "big", "d18_6", "d38", "word")
        for digits in ("5, 2", "10", "38, 18")
    ),
    *(
        f"cast(number {op} as {dtype}) <> 0"
        for op in ("% 100", "% 1000")
        for dtype in ("tinyint", "smallint", "decimal(3, 1)", "string", "boolean", "float")
    ),
    *(f"cast({name} as boolean)" for name in ("number", "double", "flag", "tiny")),
    *(f"cast(flag as {dtype}) = 1" for dtype in ("int", "double", "tinyint", "bigint")),
    *("cast(flag as string) = 'true'", "cast(d5_2 as string) = '1.05'"),
    *("cast(tiny as string) = '-1'", "cast(d18_6 as string) = '0.100000'", "cast(word as int) = 5"),
    *("try_cast(word as int) = 5", "try_cast(word as bigint) = 128"),
    *("try_cast(word as tinyint) = 127", "try_cast(word as double) > 1"),
    *("try_cast(word as boolean)", "try_cast(word as date) = DATE '2024-01-31'"),
    *("cast(word as binary) = X'61'", "try_cast(word as float) = 1"),
    *("values == try_cast('x' as int)", "number = try_cast('5' as int)"),
    *("try_cast('2024-02-30' as date) IS NULL", "try_cast('abc' as double) IS NULL"),
    *("cast('5' as int) = number", "cast('x' as int) = 1", "int('7') > number"),
    *("cast('1.5' as int) = 1", "cast(1.5 as int) = 1", "cast(300 as tinyint) = 44"),
    *("try_cast(300 as tinyint) IS NULL", "string(number) = '5'", "int(double) = 5"),
    *("bigint(d5_2) = 1", "double(word) = 5", "boolean(number)", "date(at) = day", "word = 5"),
    *("word < 10", "code IN (1, 2)", "word > 1.5", "word = flag", "word = day", "5 = word"),
    *("word BETWEEN 1 AND 5", "word <=> 5", "number IN ('5', '0')", "number IN ('5', 1)"),
    *("double IN ('0.5', 1)", "day IN ('2024-01-31')", "number = 'x'", "number < '2.5'"),
    *("day = 'x'", "cast('2024-2-9' as date) = day", "day = '2024-2-9'", "day = ' 2024-02-29 '"),
    *("day > '2024'", "at > '2024-1-31'", "day = '2024-01-31 12:00:00'"),
]
