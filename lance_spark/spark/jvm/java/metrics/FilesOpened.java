package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** Counts data files that tasks open. */
public class FilesOpened extends CustomSumMetric {
  public String name() {
    return "numFilesOpened";
  }

  public String description() {
    return "files opened";
  }
}
