package org.lancespark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.util.ResolveDefaultColumns$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SQLConf;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Adds the columns that an INSERT by name leaves out, with their defaults. Later versions of Spark
 * do it themselves. Spark 4.0 does it for tables of its session catalog only.
 */
public class MissingColumnsRule extends Rule {
  public TreeNode apply(TreeNode plan) {
    return (TreeNode) ((LogicalPlan) plan).resolveOperators(new Replacement());
  }

  /** Returns the statement with all columns, or the same statement if that is not possible. */
  static InsertIntoStatement complete(InsertIntoStatement insert)
      throws ReflectiveOperationException {
    Object table = SparkField.TABLE.of(insert);
    LogicalPlan query = (LogicalPlan) SparkField.QUERY.of(insert);
    if (!(table instanceof DataSourceV2Relation)
        || !(((DataSourceV2Relation) table).table() instanceof NamedTable)
        || !query.resolved()
        || !((Map) SparkField.PARTITION_SPEC.of(insert)).isEmpty()) {
      return insert;
    }
    List outputs = new ArrayList(CollectionConverters.asJava(query.output()));
    List names = new ArrayList(CollectionConverters.asJava(insert.userSpecifiedCols()));
    boolean isNamed = !names.isEmpty();
    if (insert.byName() && !isNamed) {
      for (int i = 0; i < outputs.size(); i++) {
        names.add(((Attribute) outputs.get(i)).name());
      }
    }
    int given = names.size();
    if (given == 0 || given != outputs.size()) {
      return insert;
    }
    SQLConf conf = SQLConf.get();
    List columns = CollectionConverters.asJava(((DataSourceV2Relation) table).output());
    for (int i = 0; i < columns.size(); i++) {
      Attribute column = (Attribute) columns.get(i);
      if (!contains(names, column.name(), conf.caseSensitiveAnalysis())) {
        Option value =
            ResolveDefaultColumns$.MODULE$.getDefaultValueExprOrNullLit(
                column, conf.useNullsForMissingDefaultColumnValues());
        if (value.isEmpty()) {
          return insert;
        }
        names.add(column.name());
        outputs.add(value.get());
      }
    }
    // Spark's error about a column that the table does not have is to name the given columns only.
    if (names.size() == given || names.size() != columns.size()) {
      return insert;
    }
    Seq projected = CollectionConverters.asScala(outputs).toSeq();
    Object specified =
        isNamed ? (Object) CollectionConverters.asScala(names).toSeq() : insert.userSpecifiedCols();
    return (InsertIntoStatement)
        SparkShims.copy(
            insert,
            new SparkField[] {SparkField.QUERY, SparkField.USER_SPECIFIED_COLS},
            new Object[] {new Project(projected, query), specified});
  }

  private static boolean contains(List names, String name, boolean exactly) {
    for (int i = 0; i < names.size(); i++) {
      String other = (String) names.get(i);
      if (exactly ? other.equals(name) : other.equalsIgnoreCase(name)) {
        return true;
      }
    }
    return false;
  }

  /** Refuses new columns by a MERGE, which Spark 4.0 ignores. */
  static void check(MergeIntoTable merge) {
    for (Iterator i = merge.targetTable().collectLeaves().iterator(); i.hasNext(); ) {
      Object leaf = i.next();
      if (merge.withSchemaEvolution()
          && leaf instanceof DataSourceV2Relation
          && ((DataSourceV2Relation) leaf).table() instanceof NamedTable) {
        throw Errors.unchecked(
            ((DataSourceV2Relation) leaf).table().name()
                + ": MERGE WITH SCHEMA EVOLUTION needs Spark 4.1; add columns by ALTER TABLE");
      }
    }
  }

  static class Replacement extends Replacing {
    public boolean isDefinedAt(Object node) {
      return node instanceof InsertIntoStatement || node instanceof MergeIntoTable;
    }

    Object replaced(Object node) {
      if (node instanceof MergeIntoTable) {
        check((MergeIntoTable) node);
        return node;
      }
      try {
        return complete((InsertIntoStatement) node);
      } catch (ReflectiveOperationException e) {
        Log.leftToSpark("columns that an INSERT leaves out", e);
      }
      return node;
    }
  }
}
