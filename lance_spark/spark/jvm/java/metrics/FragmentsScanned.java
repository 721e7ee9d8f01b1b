package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** Counts fragments whose files tasks open. Public, because the web interface makes an instance. */
public class FragmentsScanned extends CustomSumMetric {
  public String name() {
    return "numFragmentsScanned";
  }

  public String description() {
    return "fragments scanned";
  }
}
