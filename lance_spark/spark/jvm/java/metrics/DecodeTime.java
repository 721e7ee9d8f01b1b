package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.util.Utils;

/** The time in which tasks decode pages. */
public class DecodeTime extends CustomSumMetric {
  public String name() {
    return "decodeTime";
  }

  public String description() {
    return "time to decode";
  }

  public String aggregateTaskMetrics(long[] values) {
    return Utils.msDurationToString(Metrics.sum(values) / 1000000);
  }
}
