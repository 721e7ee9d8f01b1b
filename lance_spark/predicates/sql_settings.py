"""Settings of a Spark session that change the meaning of a predicate's text.

| field (`SPARK_NAMES` has the names in Spark) | effect of a value other than the default |
| --- | --- |
| `ansi` | other common types, and null if a cast fails |
| `double_quoted_identifiers` | in ANSI mode, double quotes enclose names |
| `reserved_keywords` | in ANSI mode, keywords need backticks as names |
| `case_sensitive` | the case of column names matters |
| `time_zone` | the zone of timestamps without a zone |
| `timestamp_type` | the type of ``TIMESTAMP '...'`` and of a cast to ``timestamp`` |
| `escaped_string_literals` | backslashes in strings are kept |
| `consecutive_string_literals` | doubled quotes are removed, as always in Spark 4.0 |
| `exponent_literals_as_decimals` | 1e3 is a decimal |
| `minimum_precision` | integers beside decimals are wider |
| `retain_fraction_digits` | decimals past 38 digits lose digits before the point |
| `allow_precision_loss` | the same, in arithmetic |
| `bang_equals_not` | ``a ! IN (1)`` is allowed |
| `variable_substitution` | if true, Spark replaces ``${name}``; such a text is refused |
| `negative_scale` | 1E10BD has a negative scale; it is refused |
| `datetime_to_string` | without ANSI mode, dates compare with strings as strings; refused |
| `quoted_regex_columns` | names in backticks are patterns; refused |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lance_spark.errors import InvalidInputError

#: Spark's name of each field of `SqlSettings`.
SPARK_NAMES: dict[str, str] = {
    "ansi": "spark.sql.ansi.enabled",
    "double_quoted_identifiers": "spark.sql.ansi.doubleQuotedIdentifiers",
    "reserved_keywords": "spark.sql.ansi.enforceReservedKeywords",
    "case_sensitive": "spark.sql.caseSensitive",
    "time_zone": "spark.sql.session.timeZone",
    "timestamp_type": "spark.sql.timestampType",
    "escaped_string_literals": "spark.sql.parser.escapedStringLiterals",
    "consecutive_string_literals": "spark.sql.legacy.consecutiveStringLiterals.enabled",
    "exponent_literals_as_decimals": "spark.sql.legacy.exponentLiteralAsDecimal.enabled",
    "minimum_precision": "spark.sql.legacy.literal.pickMinimumPrecision",
    "retain_fraction_digits": "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate",
    "allow_precision_loss": "spark.sql.decimalOperations.allowPrecisionLoss",
    "bang_equals_not": "spark.sql.legacy.bangEqualsNot",
    "variable_substitution": "spark.sql.variable.substitute",
    "negative_scale": "spark.sql.legacy.allowNegativeScaleOfDecimal",
    "datetime_to_string": "spark.sql.legacy.typeCoercion.datetimeToString.enabled",
    "quoted_regex_columns": "spark.sql.parser.quotedRegexColumnNames",
}
_TIMESTAMP_TYPES = ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ")


@dataclass(frozen=True, slots=True)
class SqlSettings:
    """Settings that change the meaning of a predicate's text.

    The defaults are as in Spark 4.1 and later.

    Attributes
    ----------
    time_zone : str or None
        A name such as Europe/Berlin, or an offset such as +01:00. If None, a predicate that needs
        the zone of a session is refused.
    timestamp_type : str
        "TIMESTAMP_LTZ" or "TIMESTAMP_NTZ".

    The other attributes are flags. The module's table describes them.
    """

    ansi: bool = True
    double_quoted_identifiers: bool = False
    reserved_keywords: bool = False
    case_sensitive: bool = False
    time_zone: str | None = None
    timestamp_type: str = "TIMESTAMP_LTZ"
    escaped_string_literals: bool = False
    consecutive_string_literals: bool = False
    exponent_literals_as_decimals: bool = False
    minimum_precision: bool = True
    retain_fraction_digits: bool = False
    allow_precision_loss: bool = True
    bang_equals_not: bool = False
    variable_substitution: bool = True
    negative_scale: bool = False
    datetime_to_string: bool = False
    quoted_regex_columns: bool = False

    @classmethod
    def from_conf(cls, conf: Mapping[str, str | None]) -> SqlSettings:
        """Return the settings of a session.

        - `conf`: Values by Spark's names (`SPARK_NAMES`). A missing name, or None, keeps the
          default. Other names are ignored.

        Raises InvalidInputError: Spark does not allow a value.
        """
        values: dict[str, Any] = {}
        for field in fields(cls):
            name = SPARK_NAMES[field.name]
            text = conf.get(name)
            if text is None:
                continue
            if field.name == "time_zone":
                values[field.name] = text
            elif field.name == "timestamp_type":
                if text.upper() not in _TIMESTAMP_TYPES:
                    raise InvalidInputError(
                        f"{name} must be one of {', '.join(_TIMESTAMP_TYPES)}, not {text!r}"
                    )
                values[field.name] = text.upper()
            else:
                if text.lower() not in ("true", "false"):
                    raise InvalidInputError(f"{name} must be true or false, not {text!r}")
                values[field.name] = text.lower() == "true"
        return cls(**values)

    def changed(self) -> dict[str, str]:
        """Return the settings that differ from the defaults, by Spark's names, for `from_conf`."""
        default = SqlSettings()
        return {
            SPARK_NAMES[field.name]: str(value).lower() if isinstance(value, bool) else value
            for field in fields(self)
            if (value := getattr(self, field.name)) != getattr(default, field.name)
        }


#: The defaults of Spark 4.
DEFAULTS = SqlSettings()
#: Of texts without a session: times without a zone are in UTC, as in other Lance clients.
LOCAL = SqlSettings(time_zone="UTC")
