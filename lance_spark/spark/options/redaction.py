"""Redaction of secrets among the options that Spark shows in plans, the event log and the web
interface.

Spark hides options whose names or values match `spark.redaction.regex` ("secret", "password",
"token" by default) or `spark.sql.redaction.options.regex` ("url"). Many storage options match
neither: `azure_storage_account_key`, `google_service_account_key`, `key`. `PATTERN` is therefore
added to the second setting: by `enable` for a session, by `spark-conf/spark-defaults.conf` and
`python -m lance_spark conf` for a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = "spark.sql.redaction.options.regex"
_DEFAULT = "(?i)url"
#: Names of options that may hold secrets, and URIs with a password, as a Java regular expression.
#: It matches whole names: Spark compares values too, and a path that contains such a word is to be
#: shown. It has no backslash, because properties files would remove it.
PATTERN = (
    "(?i:^[a-z0-9_.]*(?:secret|key|token|passw|passphrase|credential|connection_string"
    "|service_account|storage_options|base_store_params|sas_|bearer|signature)[a-z0-9_.]*$)"
    "|(?i:^storage[.][a-z0-9_.-]*(?:account|auth|connection|credential|key|pass|private|sas"
    "|secret|signature|token)[a-z0-9_.-]*$)"
    "|://[^/@]*:[^/]*@"
)
#: The value of the setting for a cluster that has no pattern of its own.
FOR_CLUSTERS = f"{_DEFAULT}|{PATTERN}"


def redact(spark: SparkSession) -> None:
    """Add `PATTERN` to the setting of a session, and so of sessions that are made from it. A second
    call does nothing.
    """
    current = str(spark.conf.get(CONF, _DEFAULT) or "")
    if PATTERN not in current:
        spark.conf.set(CONF, f"{current}|{PATTERN}" if current else PATTERN)
