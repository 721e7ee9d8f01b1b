package org.lancespark;

import java.util.Map;
import java.util.Set;
import org.apache.spark.JobArtifactSet$;
import org.apache.spark.JobArtifactState;
import org.apache.spark.sql.catalyst.analysis.NamedRelation;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.optimizer.MergeScalarSubqueries$;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.AppendData$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.Origin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingPartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.util.AccumulatorV2;
import scala.Option;

/** What is of Spark 4.0 only. The other folders have the same class for the other releases. */
final class SparkRelease {
  static final String VERSION = "4.0";

  private SparkRelease() {}

  /** Returns whether filters come as expressions. Spark 4.0 passes predicates, which lack LIKE. */
  static boolean passesExpressions() {
    return false;
  }

  /** Returns whether Spark refuses an INSERT into a table of ours that leaves columns out. */
  static boolean leavesColumnsOut() {
    return true;
  }

  /** Returns whether Spark pads the columns of a table before it plans a DELETE from it. */
  static boolean padsBeforeDeletes() {
    return true;
  }

  /** Returns whether all references of a statement to a table get the options of the first. */
  static boolean sharesOptions() {
    return true;
  }

  /** Returns false for Spark 4.0, which takes a batch without columns to have no rows. */
  static boolean takesBatchesWithoutColumns() {
    return false;
  }

  /** Returns whether functions of a session have other names than those of extensions. */
  static boolean qualifiesFunctions() {
    return false;
  }

  /** Returns whether joins by the keys of partitions have the right rows with all settings. */
  static boolean keepsRowsOfKeys() {
    return false;
  }

  /** Returns whether Spark has joins with NEAREST BY. */
  static boolean joinsNearest() {
    return false;
  }

  /** Returns whether a plan is such a join. */
  static boolean isNearestJoin(Object plan) {
    return false;
  }

  /** Returns whether a plan is a MERGE that only inserts rows. */
  static boolean isInsertOnlyMerge(Object plan) {
    return false;
  }

  /** Adds the capability of tables to get new columns by a statement, which Spark 4.0 lacks. */
  static void addSchemaEvolution(Set capabilities) {}

  /** Returns a table of a catalog, which Spark 4.2 and later ask for the changes it supports. */
  static NamedTable namedTable(LanceCatalog catalog, Identifier identifier, Map reply) {
    return new NamedTable(catalog, identifier, reply);
  }

  /** Returns Spark's rule that merges subqueries. */
  static Rule mergingOfSubqueries() {
    return MergeScalarSubqueries$.MODULE$;
  }

  /** Returns the text of an expression as Spark names columns. */
  static String pretty(Expression expression) {
    return org.apache.spark.sql.catalyst.util.package$.MODULE$.toPrettySQL(expression);
  }

  /** Returns the command that appends rows by position. */
  static LogicalPlan append(Object relation, Object query) {
    return AppendData$.MODULE$.byPosition(
        (NamedRelation) relation,
        (LogicalPlan) query,
        AppendData$.MODULE$.byPosition$default$3());
  }

  /** Returns Spark's own factory of readers, whose tasks add values to an accumulator. */
  static PartitionReaderFactory readerFactory(
      RequestTable table,
      CaseInsensitiveStringMap options,
      PythonDataSourceReadInfo info,
      StructType output,
      AccumulatorV2 accumulator) {
    Option artifacts = JobArtifactSet$.MODULE$.getCurrentJobArtifactState();
    Option uuid =
        artifacts.isEmpty() ? artifacts : Option.apply(((JobArtifactState) artifacts.get()).uuid());
    return new PythonPartitionReaderFactory(
        new SparkShims.CountedSource(table.source, accumulator).source(),
        info.func(),
        output,
        uuid);
  }

  /**
   * Returns a copy of Spark's own factory of readers of a stream, which reads other columns by
   * another function.
   */
  static PartitionReaderFactory streamFactory(
      PartitionReaderFactory original, byte[] function, StructType output) {
    PythonStreamingPartitionReaderFactory python =
        (PythonStreamingPartitionReaderFactory) original;
    return new PythonStreamingPartitionReaderFactory(
        python.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$source,
        function,
        output,
        python.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$jobArtifactUUID);
  }

  /** Returns Spark's error about the syntax of a statement. */
  static ParseException syntaxError(
      String statement, Object line, Object position, scala.collection.immutable.Map parameters) {
    Option none = Option.empty();
    Origin origin =
        new Origin(
            Option.apply(line), Option.apply(position), none, none, none, none, none, none, none);
    return new ParseException(
        Option.apply(statement), origin, origin, "PARSE_SYNTAX_ERROR", parameters);
  }
}
