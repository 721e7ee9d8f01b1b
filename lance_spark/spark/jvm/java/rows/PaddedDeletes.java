package org.lancespark;

import org.apache.spark.sql.catalyst.analysis.RewriteDeleteFromTable$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;

/**
 * Plans a DELETE with a condition from a table with columns of char(n), in Spark 4.0. Spark would
 * first put a projection on the table that pads these columns, and then not find the table of the
 * statement. Later versions plan the statement first, too.
 */
public final class PaddedDeletes extends Rule {
  public TreeNode apply(TreeNode plan) {
    return (TreeNode) ((LogicalPlan) plan).resolveOperators(new Deletes());
  }

  static class Deletes extends Replacing {
    public boolean isDefinedAt(Object node) {
      if (!(node instanceof DeleteFromTable) || !((LogicalPlan) node).resolved()) {
        return false;
      }
      Object target = SparkField.TABLE.of(node);
      while (target instanceof SubqueryAlias) {
        target = ((SubqueryAlias) target).child();
      }
      return target instanceof DataSourceV2Relation
          && ((DataSourceV2Relation) target).table() instanceof NamedTable
          && ((NamedTable) ((DataSourceV2Relation) target).table()).hasLimitedTexts()
          && !isTrue((Expression) SparkField.CONDITION.of(node));
    }

    Object replaced(Object node) {
      return RewriteDeleteFromTable$.MODULE$.apply((LogicalPlan) node);
    }

    private static boolean isTrue(Expression condition) {
      return condition instanceof Literal
          && Boolean.TRUE.equals(((Literal) condition).value());
    }
  }
}
