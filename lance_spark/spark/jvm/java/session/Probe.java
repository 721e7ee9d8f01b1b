package org.lancespark;

import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * A source with one column if the session has the rules, and none if not. With the option "enable",
 * the session gets them. Clients of Spark Connect read its schema, for which the server runs no
 * task: executors do not have the classes.
 */
public class Probe implements RelationProvider {
  public BaseRelation createRelation(
      SQLContext context, scala.collection.immutable.Map parameters) {
    SparkSession session = SparkSession.active();
    if (parameters.contains("enable")) {
      new Extension().apply(session.extensions());
      Extension.addTo(session);
    }
    StructType schema = new StructType();
    boolean isEnabled = Extension.isIn(session.extensions());
    return new Answer(context, isEnabled ? schema.add("enabled", DataTypes.BooleanType) : schema);
  }
}
