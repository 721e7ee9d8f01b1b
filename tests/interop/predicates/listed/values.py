"""Literals, and values that are compared with them: coercion of types, floats, dates and times."""

from __future__ import annotations

_OPS = ("=", ">", ">=", "<", "<=", "<>")

LITERALS = [
    *("tiny = 1Y", "tiny = 127Y", "tiny = -128Y", "tiny < 128Y", "small = 32767S"),
    *("small < 32768S", "big = 2147483648L", "big = 9223372036854775807L"),
    *("big = -9223372036854775808L", "big < 9223372036854775808L", "number = 2147483647"),
    *("number = -2147483648", "big = 9223372036854775807", "big >= -9223372036854775808"),
    *("big < 9223372036854775808", "big > -9223372036854775809"),
    *("d38 < 1234567890123456789012345678901234567890", "double = 1D", "double > .10D"),
    *("double = 0.10D", "double < 1e10", "double < 1.5e5", "double < .1e5", "double < .9e+2"),
    *("double > 0.9e-2", "double = 900e-1", "double < 9.e+1", "double = .e3", "double < 1E309"),
    *("double > -1E309", "double < 123456789012345678901234567890123456789e10", "d18_6 = 0.3"),
    *("d18_6 > -0.8", "d18_6 > .5", "d18_6 > -.18", "d18_6 = 0.1111", 'word = "a"'),
    *("word = 'a' 'b'", "word = 'a' \"b\"", "word = 'O' '\\'' 'Brien'", 'word = "O\'Brien"'),
    *("word = 'say \"hi\"'", 'word = "say \\"hi\\""', 'word = "say ""hi"""', "word LIKE '50\\%'"),
    *("word LIKE '50\\\\%'", "word = '50%'", "word = '50\\%'", "word = 'a\\_b'", "word = '\\0'"),
    *("word = '\\''", "word = 'a\\0b'", "word = 'x\\ny'", "word = '\\r\\n'", "word = 'x\\ty'"),
    *("word = '\\141\\142'", "word = '\\u0061\\u0062'", "word = '\\U0001F600'"),
    *("word = '\\uD83D\\uDE00'", "word = r'a\\b'", 'word = R"a\\b"', "word = r'\\u0061'"),
    *("word = '\\a'", "word = '\\Z'", "word = 'a\\\\b'", "day = dAte '2024-01-31'"),
    *("day = date 'mar 11 2024'", "at = tImEstAmp '2024-01-31 12:30:15.000Z'"),
    *("at = timestamp '2024-33-11 20:54:00.000'", "bytes = X'1F2A'", "bytes = x'1f2a'"),
    *("bytes = X'F'", "bytes = X'1G'", "flag = tRue", "flag <> fALse", "word = nUll"),
    *("number = 1e0", "number = 1.", "number=5", "number = +5"),
]

COERCION = [
    *(
        f"{name} {op} 5.5"
        for name in ("tiny", "small", "number", "big", "u64")
        for op in (">", "=")
    ),
    *(f"{name} {op} 16777217" for name in ("single", "double", "half", "d10") for op in ("=", "<")),
    *(f"single {op} 0.1" for op in ("=", "<", ">=")),
    *(f"single {op} 0.1D" for op in ("=", "<", ">")),
    *("single = 0.1F", "single = float('0.1')", "single = cast(0.1 as float)"),
    *("single in (0.1, 0.3)", "single in (0.1F)", "half = 0.1", "half = 0.1F", "half = 65504"),
    *("half > 65504", "half < 65505", "half = 0.0999755859375", "big = 9007199254740993D"),
    *("big = 9007199254740993", "big = 9007199254740992e0", "big > 9.223372036854775807e18"),
    *("tiny = 300", "tiny < 300", "tiny > 300", "tiny <> 300", "tiny <=> 300", "tiny in (5, 300)"),
    "tiny not in (5, 300)",
    *(
        "u8 = 255",
        "u8 < 256",
        "u8 > -1",
        "u64 > 9223372036854775807",
        *(
            f"{no}(u64 {op} {bound})"
            for no in ("", "NOT ")
            for op in ("<", "<=", ">", ">=")
            for bound in (
                "9223372036854775808",
                "18446744073709551615",
                "18446744073709551616",
                "-9223372036854775809",
                "9223372036854775807.5",
            )
        ),
        "u64 NOT BETWEEN 9223372036854775808 AND -1",
        "u64 <=> 9223372036854775808",
        "u64 + 0 < 9223372036854775808",
        "u64 >= 0",
        "u32 = 4294967295",
        "u16 <> 65535",
    ),
    *("d5_2 = 1.050", "d5_2 = 1.055", "d5_2 > 999.994", "d5_2 < 1000", "d5_2 = 1", "d5_2 = 1.05D"),
    *("d5_2 <> 0.30000000000000004D", "d38 = 0", "d38 = 0.0", "d38 = 0.5", "d38 > 0.5"),
    *("d38_38 < 1", "d38_38 > 1e-38", "d38_38 = 0.1", "d38_38 = 0", "d38_18 = 0.5"),
    *("d38_18 > 99999999999999999999", "d10 = 5.0", "d10 > 4.999999999999", "d10 in (5.0, 1)"),
    *("d18_6 = 5e-1", "number = '5'", "number = ' 5 '", "number < 'x'", "double = 'NaN'"),
    *("double > '1e300'", "d5_2 = '1.05'", "flag = 'true'", "flag = 'yes'", "flag = 1", "flag = 0"),
    *("word = 5", "word = 1.0", "word > 5", "word = true", "word = X'61'"),
    *("word = DATE'2024-01-31'", "word < TIMESTAMP'2024-01-31 12:30:15'", "day = '2024-01-31'"),
    *("day = '2024'", "day > 'x'", "bytes = 'abc'", "'abc' = bytes", "bytes > 'a'"),
    *("three = X'616263'", "three = X'61'", "three > X'00'", "bytes in (X'61', 'ab')"),
    *("number = small", "small < big", "big = u64", "tiny >= u8", "single = double"),
    *("half <= single", "number > double", "d5_2 = d18_6", "d38 = d38_18", "d38_38 < d10"),
    *("d5_2 > single", "number = d10", "word = code", "word = number", "day = at", "day < clock"),
    *("at = clock", "at_ns = at", "clock_s = clock", "day = day64", "bytes = three"),
    *("flag = other_flag", "at = '2024-01-31 12:30:15Z'", "clock = '2024-01-31 12:30:15'"),
    *("at > 5", "day = 5", "number = flag", "single = double('NaN')"),
]

FLOATS = [
    *(f"double {op} double('NaN')" for op in (*_OPS, "<=>")),
    *(f"single {op} float('NaN')" for op in ("=", "<", ">=")),
    *(f"double {op} double('Infinity')" for op in _OPS),
    *(f"double {op} -0.0D" for op in ("=", "<", ">=")),
    *("double in (double('NaN'), 0D)", "double not in (double('NaN'))", "double in (-0.0D)"),
    *("double between -0.0 and 0.0", "double between 0 and double('NaN')"),
    *("double > 1.7976931348623157E308", "double = 4.9E-324", "single > 3.4028234663852886E38"),
    *("not (double > 0)", "not (double <= 0)", "not (double = double('NaN'))", "double <> double"),
    *("double = double", "-double > 0", "half = float('NaN')", "half > 65504", "half <> half"),
    *("double = 0", "double <> 0", "not isnan(double) and double > 0", "deep.f > float('inf')"),
    *("deep.f = 16777216", "deep.f < 16777217", "`größe` >= double('inf')"),
    "single in (16777217, 16777215.5)",
]

TIMES = [
    *(f"day {op} DATE '2024-01-31'" for op in _OPS),
    *("day = DATE '0001-01-01'", "day = DATE '9999-12-31'", "day < DATE '1582-10-15'"),
    *("day = DATE '1582-10-04'", "day in (DATE '2024-01-31', '1970-01-01')"),
    *("day between '2024-01-01' and '2024-12-31'", "day = DATE '2024-1-31'"),
    *("day = DATE '2024-02-30'", "day64 > 'epoch'"),
    "clock <=> timestamp('2024-01-31 12:30:15 +5:30')",
    *("clock = timestamp('2024-01-31 12:30:15')", "at = timestamp('2024-01-31 12:30:15 UTC')"),
    *("at > ' EPOCH '", "clock > 'epoch UTC'", "day < 'Now'", "at < 'today'"),
    *("at < cast('yesterday' as timestamp)", "day < cast(concat('ep', 'och') as date)"),
    *("cast(comment as date) > '2024-01-01'", "day < 'epochs'", "day >= DATE '2024'"),
    *("day64 = DATE '2024-01-31'", "at = TIMESTAMP '2024-01-31 12:30:15'"),
    *("at = TIMESTAMP '2024-01-31 12:30:15Z'", "at = TIMESTAMP '2024-01-31 13:30:15+01:00'"),
    *("at = TIMESTAMP '2024-01-31 13:30:15 Europe/Berlin'", "at = TIMESTAMP '2024-03-10 02:30:00'"),
    *("at = TIMESTAMP '2024-11-03 01:30:00'", "at >= TIMESTAMP '2024-01-31'"),
    "at < TIMESTAMP '2024-01-31 12:30:15.123456Z'",
    *("at = TIMESTAMP_LTZ '2024-01-31 12:30:15 UTC'", "at = TIMESTAMP_NTZ '2024-01-31 12:30:15'"),
    "clock = TIMESTAMP_NTZ '2024-01-31 12:30:15.123456'",
    *("clock = TIMESTAMP '2024-01-31 12:30:15'", "clock >= TIMESTAMP_NTZ '2024-01-31T12:30:15'"),
    "clock_s = TIMESTAMP_NTZ '2024-01-31 12:30:15.5'",
    "clock_s < TIMESTAMP_NTZ '2024-01-31 12:30:15.5'",
    "clock in (TIMESTAMP_NTZ '1970-01-01 00:00:00', TIMESTAMP_NTZ '2024-01-31')",
    "at_ns = TIMESTAMP '2024-01-31 12:30:15.123456Z'",
    *("at_ns >= TIMESTAMP '9999-01-01 00:00:00Z'", "year(day) = 2024", "month(at) = 1"),
    "date_trunc('month', clock) = TIMESTAMP_NTZ '2024-01-01 00:00:00'",
    *("cast(at as date) = DATE '2024-01-31'", "day + 1 = DATE '2024-02-01'"),
    "day > DATE '2024-02-01' - INTERVAL '1' DAY",
    "at - INTERVAL '1' HOUR < TIMESTAMP '2024-01-31 12:00:00Z'",
    *("datediff(day, DATE '2024-01-31') = 0", "day > TIMESTAMP '2024-01-30 23:59:59'"),
    *("at > DATE '2024-01-30'", "clock between '2024-01-01' and '2024-12-31 23:59:59'", "at = 'x'"),
    "day is not null and day > '2024-01-01'",
]
