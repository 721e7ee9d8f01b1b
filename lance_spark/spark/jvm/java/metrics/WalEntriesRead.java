package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** Counts WAL entries that a scan reads. Public, because the web interface makes an instance. */
public class WalEntriesRead extends CustomSumMetric {
  public String name() {
    return "numWalEntriesRead";
  }

  public String description() {
    return "entries of the MemWAL read";
  }
}
