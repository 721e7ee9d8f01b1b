package org.lancespark;

import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.StructType;

/** What a source returns where Spark wants a relation: no rows, and the columns say it all. */
public class Answer extends BaseRelation {
  private final SQLContext context;
  private final StructType schema;

  Answer(SQLContext context, StructType schema) {
    this.context = context;
    this.schema = schema;
  }

  public SQLContext sqlContext() {
    return context;
  }

  public StructType schema() {
    return schema;
  }
}
