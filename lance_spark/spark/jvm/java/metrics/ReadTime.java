package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.util.Utils;

/** The time for which tasks wait for the store. */
public class ReadTime extends CustomSumMetric {
  public String name() {
    return "readTime";
  }

  public String description() {
    return "time to read";
  }

  public String aggregateTaskMetrics(long[] values) {
    return Utils.msDurationToString(Metrics.sum(values) / 1000000);
  }
}
