package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** Counts new rows. */
public class RowsInserted extends CustomSumMetric {
  public String name() {
    return "numInsertedRows";
  }

  public String description() {
    return "rows inserted";
  }
}
