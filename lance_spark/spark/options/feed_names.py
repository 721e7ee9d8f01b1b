"""Option names of change feeds and streams.

Their parser is another module, because most reads and writes set none of these options.
"""

from __future__ import annotations

#: Options of reads: the changes to read, and the size of a batch.
FEED_NAMES = (
    "read_change_feed",
    "starting_version",
    "ending_version",
    "starting_timestamp",
    "ending_timestamp",
    "max_fragments_per_trigger",
    "max_bytes_per_trigger",
    "skip_change_commits",
)
LOOKBACK = "lance.streaming.dedupe.lookback.versions"
#: Options of stream writers.
STREAM_NAMES = ("streaming_query_id", LOOKBACK)
#: The spelling without underscores, which Spark users expect.
SAME = {name.replace("_", ""): name for name in (*FEED_NAMES, "streaming_query_id")}
#: Options that Spark itself adds for a stream.
OF_SPARK = frozenset({"checkpointlocation", "queryname"})
