"""Session settings of the installed Spark release."""

from __future__ import annotations

from collections.abc import Mapping

from lance_spark.scan.predicates.sql_settings import SPARK_NAMES, SqlSettings


def settings_of_session(conf: Mapping[str, str | None]) -> SqlSettings:
    """Return the settings of a session of the installed Spark release.

    Parameters
    ----------
    conf : mapping of str to str
        Values by Spark's names. Names without a value have the default of this release.

    Raises
    ------
    InvalidInputError
        Spark does not allow a value.
    """
    if not _doubled_quotes_are_quotes():
        # Spark 4.0 ignores a setting that it does not have.
        conf = {**conf, SPARK_NAMES["consecutive_string_literals"]: "true"}
    return SqlSettings.from_conf(conf)


def _doubled_quotes_are_quotes() -> bool:
    """Return whether a doubled quote in a string can mean a quote: since Spark 4.1."""
    import pyspark

    return tuple(int(part) for part in pyspark.__version__.split(".")[:2]) >= (4, 1)
