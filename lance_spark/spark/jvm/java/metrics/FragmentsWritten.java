package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** Counts new fragments. */
public class FragmentsWritten extends CustomSumMetric {
  public String name() {
    return "numFragmentsWritten";
  }

  public String description() {
    return "fragments written";
  }
}
