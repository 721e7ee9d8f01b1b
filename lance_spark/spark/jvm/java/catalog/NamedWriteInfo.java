package org.lancespark;

import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What Spark says of a write, with the options and the columns of a table of the catalog. */
public class NamedWriteInfo implements LogicalWriteInfo {
  private final LogicalWriteInfo info;
  private final CaseInsensitiveStringMap options;
  private final StructType schema;

  NamedWriteInfo(LogicalWriteInfo info, CaseInsensitiveStringMap options, StructType schema) {
    this.info = info;
    this.options = options;
    this.schema = schema;
  }

  public CaseInsensitiveStringMap options() {
    return options;
  }

  public String queryId() {
    return info.queryId();
  }

  public StructType schema() {
    return schema;
  }
}
