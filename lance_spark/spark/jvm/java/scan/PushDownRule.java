package org.lancespark;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/**
 * Replaces the Python tables of format("lance") by tables that send requests (RequestTable), just
 * before Spark pushes columns, filters, aggregates and limits down to tables. Adds an option to
 * writes (Writes). Nothing else of a plan changes.
 */
public class PushDownRule extends Rule {
  static final String ENABLED = "spark.lance.pushdown.enabled";

  /** Setting: whether small queries are answered on the driver, while they are planned. */
  static final String LOCAL = "spark.lance.pushdown.local";

  static final String FORMAT = "lance";

  /** The option of change feeds, whose reader takes no requests, in both spellings. */
  static final String CHANGE_FEED = "readChangeFeed";

  static final String CHANGE_FEED_SNAKE = "read_change_feed";

  public TreeNode apply(TreeNode plan) {
    try {
      if (!Boolean.parseBoolean(SQLConf.get().getConfString(ENABLED, "true"))) {
        return plan;
      }
      return (TreeNode) ((LogicalPlan) plan).transform(new Replacement());
    } catch (Exception e) {
      Log.leftToSpark("plans", e);
    } catch (LinkageError e) {
      Log.leftToSpark("plans", e);
    }
    return plan;
  }

  static boolean isOurs(Object node) {
    if (!(node instanceof DataSourceV2Relation)) {
      return false;
    }
    DataSourceV2Relation relation = (DataSourceV2Relation) node;
    Table table = relation.table();
    return table instanceof PythonTable
        && table.name().equalsIgnoreCase(FORMAT)
        && !readsChanges(relation.options());
  }

  /** Returns whether options ask for a change feed, whose reader takes no requests. */
  static boolean readsChanges(CaseInsensitiveStringMap options) {
    return options.containsKey(CHANGE_FEED) || options.containsKey(CHANGE_FEED_SNAKE);
  }

  static class Replacement extends AbstractPartialFunction {
    private Snapshot snapshot;

    public boolean isDefinedAt(Object node) {
      return isOurs(node) || Writes.hasText(node);
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (Writes.hasText(node)) {
        try {
          return Writes.withSettings((OverwriteByExpression) node);
        } catch (Exception e) {
          Log.leftToSpark("settings of writes", e);
        } catch (LinkageError e) {
          Log.leftToSpark("settings of writes", e);
        }
        return node;
      }
      if (!isOurs(node)) {
        return otherwise.apply(node);
      }
      DataSourceV2Relation relation = (DataSourceV2Relation) node;
      try {
        if (snapshot == null) {
          snapshot = Snapshot.ofQuery();
        }
        Table table = RequestTable.of((PythonTable) relation.table(), snapshot);
        return Versions.relationOver(relation, table);
      } catch (Exception e) {
        Log.leftToSpark("relations", e);
      } catch (LinkageError e) {
        Log.leftToSpark("relations", e);
      }
      return relation;
    }
  }
}
