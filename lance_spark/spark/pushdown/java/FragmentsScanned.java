package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** Fragments whose files tasks open. Spark's web interface makes one of its own to show them. */
public class FragmentsScanned extends CustomSumMetric {
  public String name() {
    return "numFragmentsScanned";
  }

  public String description() {
    return "fragments scanned";
  }
}
