"""Redaction of secret options in plans, the event log and the web interface of Spark.

Spark redacts options whose names or values match `spark.redaction.regex` ("secret", "password",
"token" by default) or `spark.sql.redaction.options.regex` ("url"). Many names of storage options
match neither: `azure_storage_account_key`, `google_service_account_key`, `key`. So `PATTERN`
extends the second setting: `enable` sets it for a session, `spark-conf/spark-defaults.conf` and
`python -m lance_spark conf` for a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = "spark.sql.redaction.options.regex"
_DEFAULT = "(?i)url"
#: Java regular expression for names of options that can hold secrets, and for URIs with a password.
#: Spark matches values too, so the pattern requires a whole name: a path with such a word is shown.
#: It has no backslash, because configuration files would remove it.
PATTERN = (
    "(?i:^[a-z0-9_.]*(?:secret|key|token|passw|passphrase|credential|connection_string|service_account|storage_options|base_store_params|sas_|bearer|signature)"
    "[a-z0-9_.]*$)|(?i:^storage[.][a-z0-9_.-]*(?:account|auth|connection|credential|key|pass|private|sas|secret|signature|token)[a-z0-9_.-]*$)"
    "|://[^/@]*:[^/]*@"
)
#: Value of the setting for clusters without another pattern.
FOR_CLUSTERS = f"{_DEFAULT}|{PATTERN}"


def redact(spark: SparkSession) -> None:
    """Redact secret options in the plans of a session and of sessions made from it.

    A second call does nothing.
    """
    current = str(spark.conf.get(CONF, _DEFAULT) or "")
    if PATTERN not in current:
        spark.conf.set(CONF, f"{current}|{PATTERN}" if current else PATTERN)
