"""What Spark shows of options: some plans, and with them the event log and the web interface, tell
those of a table.

Spark blots out those whose names or values match `spark.redaction.regex` ("secret", "password",
"token" by default) or `spark.sql.redaction.options.regex` ("url"). Many names of storage options
match neither: `azure_storage_account_key`, `google_service_account_key`, `key`. So `PATTERN`
belongs to the second one: `enable` sets it for a session, `spark-conf/spark-defaults.conf` and
`python -m lance_spark conf` for a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = "spark.sql.redaction.options.regex"
_DEFAULT = "(?i)url"
#: Names of options that may hold secrets, and URIs with a password, as Java's regular expressions
#: have it. Spark looks at values too: a whole name is asked for, so that paths with such a word in
#: them are shown. No backslash: files of settings would take it away.
PATTERN = (
    "(?i:^[a-z0-9_.]*(?:secret|key|token|passw|passphrase|credential|connection_string|service_account|storage_options|base_store_params|sas_|bearer|signature)"
    "[a-z0-9_.]*$)|(?i:^storage[.][a-z0-9_.-]*(?:account|auth|connection|credential|key|pass|private|sas|secret|signature|token)[a-z0-9_.-]*$)"
    "|://[^/@]*:[^/]*@"
)
#: What the setting is where nothing else is wanted.
FOR_CLUSTERS = f"{_DEFAULT}|{PATTERN}"


def redact(spark: SparkSession) -> None:
    """Have the plans of a session, and of those that are made of it, show no secrets among options;
    a second call does nothing.
    """
    now = str(spark.conf.get(CONF, _DEFAULT) or "")
    if PATTERN not in now:
        spark.conf.set(CONF, f"{now}|{PATTERN}" if now else PATTERN)
