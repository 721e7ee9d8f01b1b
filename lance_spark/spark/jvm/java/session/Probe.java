package org.lancespark;

import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * A source with one column if the session has the rules, and none if not. Clients of Spark Connect
 * read its schema, for which the server runs no task: executors do not have the classes.
 */
public class Probe implements RelationProvider {
  public BaseRelation createRelation(
      SQLContext context, scala.collection.immutable.Map parameters) {
    StructType schema = new StructType();
    boolean isEnabled = Extension.isIn(SparkSession.active().extensions());
    return new Answer(context, isEnabled ? schema.add("enabled", DataTypes.BooleanType) : schema);
  }
}
