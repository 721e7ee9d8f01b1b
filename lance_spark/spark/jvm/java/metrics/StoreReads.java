package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** Counts reads of the store, after neighbours were merged. */
public class StoreReads extends CustomSumMetric {
  public String name() {
    return "numStoreReads";
  }

  public String description() {
    return "reads of the store";
  }
}
