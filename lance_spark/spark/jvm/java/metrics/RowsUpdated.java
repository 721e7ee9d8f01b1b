package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** Counts rows with new values. */
public class RowsUpdated extends CustomSumMetric {
  public String name() {
    return "numUpdatedRows";
  }

  public String description() {
    return "rows updated";
  }
}
