package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** Fragments that no task opens. Spark's web interface makes one of its own to show them. */
public class FragmentsSkipped extends CustomSumMetric {
  public String name() {
    return "numFragmentsSkipped";
  }

  public String description() {
    return "fragments skipped";
  }
}
