package org.lancespark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Loads each table that a query names with options for itself.
 *
 * <p>Spark loads a table once for a statement. Before 4.3 it does not look at options then: all
 * references to the table get those of the first, and with them the rows of its version.
 */
public class OwnOptionsRule extends Rule {
  /** Set while the rule loads a table, for which Spark calls the rule again. */
  private static final ThreadLocal LOADS = new ThreadLocal();

  public TreeNode apply(TreeNode plan) {
    return LOADS.get() == null
        ? (TreeNode) ((LogicalPlan) plan).resolveOperators(new Replacement())
        : plan;
  }

  static class Replacement extends Replacing {
    public boolean isDefinedAt(Object node) {
      if (!(node instanceof UnresolvedRelation) || ((UnresolvedRelation) node).isStreaming()) {
        return false;
      }
      CaseInsensitiveStringMap options = ((UnresolvedRelation) node).options();
      // Spark names the privileges of a write as an option of its target.
      return !options.isEmpty()
          && !options.containsKey(UnresolvedRelation$.MODULE$.REQUIRED_WRITE_PRIVILEGES());
    }

    Object replaced(Object node) {
      Map loaded = CollectionConverters.asJava(AnalysisContext$.MODULE$.get().relationCache());
      Map before = new HashMap(loaded);
      loaded.clear();
      LOADS.set(Boolean.TRUE);
      try {
        LogicalPlan table = SparkShims.analyzed(SparkSession.active(), (LogicalPlan) node);
        return isOurs(table) ? table : node;
      } finally {
        LOADS.remove();
        loaded.clear();
        loaded.putAll(before);
      }
    }

    private boolean isOurs(LogicalPlan table) {
      for (Iterator i = table.collectLeaves().iterator(); i.hasNext(); ) {
        Object leaf = i.next();
        if (leaf instanceof DataSourceV2Relation
            && ((DataSourceV2Relation) leaf).table() instanceof NamedTable) {
          return true;
        }
      }
      return false;
    }
  }
}
