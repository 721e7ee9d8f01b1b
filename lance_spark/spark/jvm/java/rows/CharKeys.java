package org.lancespark;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import scala.Product;

/** Changes the comparisons of keys of char(n) in each MERGE (CharComparisons). */
public final class CharKeys extends Rule {
  public TreeNode apply(TreeNode plan) {
    return (TreeNode) ((LogicalPlan) plan).transform(new Statements());
  }

  /** The statements: Spark has made a join of a MERGE. */
  static class Statements extends Replacing {
    public boolean isDefinedAt(Object node) {
      return isMerge(node) && !query(node).fastEquals(compared(node));
    }

    private static boolean isMerge(Object node) {
      if (node instanceof WriteDelta) {
        RowChange change = RowChangeRule.changeOf(Versions.field((WriteDelta) node, "table"));
        return change != null && change.command() == RowLevelOperation.Command.MERGE;
      }
      return SourceKeys.isInsertOnly(node);
    }

    private static LogicalPlan query(Object node) {
      return (LogicalPlan) Versions.field((Product) node, "query");
    }

    private static LogicalPlan compared(Object node) {
      Table table =
          node instanceof WriteDelta
              ? RowChangeRule.changeOf(Versions.field((WriteDelta) node, "table")).table
              : SourceKeys.written(node);
      return (LogicalPlan) query(node).transform(new Joins(new SourceKeys(table)));
    }

    Object replaced(Object node) {
      try {
        return Versions.copy(
            (Product) node, new String[] {"query"}, new Object[] {compared(node)});
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  /** The joins of the table of a statement. */
  static class Joins extends CharComparisons {
    private final SourceKeys keys;

    Joins(SourceKeys keys) {
      this.keys = keys;
    }

    public boolean isDefinedAt(Object node) {
      return super.isDefinedAt(node) && keys.joins(node);
    }
  }
}
