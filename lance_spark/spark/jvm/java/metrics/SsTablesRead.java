package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** Counts SSTables that a scan reads. Public, because the web interface makes an instance. */
public class SsTablesRead extends CustomSumMetric {
  public String name() {
    return "numSsTablesRead";
  }

  public String description() {
    return "SSTables of the MemWAL read";
  }
}
