package org.lancespark;

import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** Changes the comparisons of keys of char(n) in each MERGE (CharComparisons). */
public final class CharKeys extends Rule {
  public TreeNode apply(TreeNode plan) {
    LogicalPlan statements = (LogicalPlan) ((LogicalPlan) plan).resolveOperators(new Statements());
    return (TreeNode) statements.resolveOperators(new Merges());
  }

  /** The statements in Spark 4.0, which makes a join of a MERGE later. */
  static class Merges extends Replacing {
    public boolean isDefinedAt(Object node) {
      return node instanceof MergeIntoTable
          && ((LogicalPlan) SparkField.TARGET_TABLE.of(node)).resolved()
          && !condition(node).fastEquals(condition(node).transform(trimming(node)));
    }

    private static Expression condition(Object node) {
      return (Expression) SparkField.MERGE_CONDITION.of(node);
    }

    private static CharComparisons.Trimming trimming(Object node) {
      LogicalPlan target = (LogicalPlan) SparkField.TARGET_TABLE.of(node);
      Set ids = new HashSet();
      for (Iterator i = target.collectLeaves().iterator(); i.hasNext(); ) {
        Object leaf = i.next();
        if (leaf instanceof DataSourceV2Relation
            && ((DataSourceV2Relation) leaf).table() instanceof NamedTable) {
          NamedTable table = (NamedTable) ((DataSourceV2Relation) leaf).table();
          ids.addAll(CharComparisons.ids(target, table.paddedColumns()));
        }
      }
      return new CharComparisons.Trimming(ids);
    }

    Object replaced(Object node) {
      try {
        return SparkShims.copy(
            node,
            new SparkField[] {SparkField.MERGE_CONDITION},
            new Object[] {condition(node).transform(trimming(node))});
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  /** The statements: Spark has made a join of a MERGE. */
  static class Statements extends Replacing {
    public boolean isDefinedAt(Object node) {
      return isMerge(node) && !query(node).fastEquals(compared(node));
    }

    private static boolean isMerge(Object node) {
      if (node instanceof WriteDelta) {
        RowChange change = RowChangeRule.changeOf(SparkField.TABLE.of(node));
        return change != null && change.command() == RowLevelOperation.Command.MERGE;
      }
      return SourceKeys.isInsertOnly(node);
    }

    private static LogicalPlan query(Object node) {
      return (LogicalPlan) SparkField.QUERY.of(node);
    }

    private static LogicalPlan compared(Object node) {
      Table table =
          node instanceof WriteDelta
              ? RowChangeRule.changeOf(SparkField.TABLE.of(node)).table
              : SourceKeys.written(node);
      Set names = ((NamedTable) table).paddedColumns();
      if (names.isEmpty()) {
        return query(node);
      }
      Set ids = new HashSet();
      query(node).foreach(new Sides(new SourceKeys(table), names, ids));
      return (LogicalPlan) query(node).resolveOperators(new CharComparisons(ids));
    }

    Object replaced(Object node) {
      try {
        return SparkShims.copy(
            node, new SparkField[] {SparkField.QUERY}, new Object[] {compared(node)});
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  /** Collects the columns of char(n) on the sides of joins that are the table. */
  static class Sides extends AbstractFunction1 {
    private final SourceKeys keys;
    private final Set names;
    private final Set ids;

    Sides(SourceKeys keys, Set names, Set ids) {
      this.keys = keys;
      this.names = names;
      this.ids = ids;
    }

    public Object apply(Object node) {
      for (int i = 0; node instanceof Join && i < 2; i++) {
        LogicalPlan side = (LogicalPlan) ((Join) node).children().apply(i);
        if (keys.reads(side)) {
          ids.addAll(CharComparisons.ids(side, names));
        }
      }
      return BoxedUnit.UNIT;
    }
  }
}
