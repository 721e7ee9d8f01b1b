package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.util.Utils;

/** Counts bytes of new data files. */
public class BytesWritten extends CustomSumMetric {
  public String name() {
    return "numBytesWritten";
  }

  public String description() {
    return "bytes written";
  }

  public String aggregateTaskMetrics(long[] values) {
    return Utils.bytesToString(Metrics.sum(values));
  }
}
