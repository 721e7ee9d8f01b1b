package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** Counts new data files and deletion files. */
public class FilesWritten extends CustomSumMetric {
  public String name() {
    return "numFilesWritten";
  }

  public String description() {
    return "files written";
  }
}
