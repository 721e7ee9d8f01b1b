package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** Counts fragments that no task opens. Public, because the web interface makes an instance. */
public class FragmentsSkipped extends CustomSumMetric {
  public String name() {
    return "numFragmentsSkipped";
  }

  public String description() {
    return "fragments skipped";
  }
}
