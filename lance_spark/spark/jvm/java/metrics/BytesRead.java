package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.util.Utils;

/** Counts bytes of data files that tasks read. */
public class BytesRead extends CustomSumMetric {
  public String name() {
    return "numBytesRead";
  }

  public String description() {
    return "bytes read";
  }

  public String aggregateTaskMetrics(long[] values) {
    return Utils.bytesToString(Metrics.sum(values));
  }
}
