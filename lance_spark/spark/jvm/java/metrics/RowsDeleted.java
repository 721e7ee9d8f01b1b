package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** Counts deleted rows. */
public class RowsDeleted extends CustomSumMetric {
  public String name() {
    return "numDeletedRows";
  }

  public String description() {
    return "rows deleted";
  }
}
