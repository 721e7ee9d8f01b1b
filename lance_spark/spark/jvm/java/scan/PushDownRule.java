package org.lancespark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.Iterator;

/**
 * Replaces the Python tables of format("lance") by tables that send requests (RequestTable), just
 * before Spark pushes columns, filters, aggregates and limits down to tables. Marks tables whose rows
 * are joined (SelectiveFilter), and adds an option to writes (Writes). Nothing else of a plan
 * changes.
 */
public class PushDownRule extends Rule {
  static final String ENABLED = "spark.lance.pushdown.enabled";

  /** Setting: whether small queries are answered on the driver, while they are planned. */
  static final String LOCAL = "spark.lance.pushdown.local";

  static final String FORMAT = "lance";

  public TreeNode apply(TreeNode plan) {
    JobDescription.dropOld();
    if (!isEnabled()) {
      return plan;
    }
    LogicalPlan whole = LateSubqueries.withJoined((LogicalPlan) plan);
    if (!(whole instanceof Subquery)) {
      return (TreeNode) replaced(LateSubqueries.putBack(whole));
    }
    // The query around it has a scan, too.
    Snapshot.ofQuery().noteOtherScans();
    Subquery subquery = LateSubqueries.setAside((Subquery) whole);
    return (TreeNode) (subquery == whole ? replaced(subquery) : subquery);
  }

  private static LogicalPlan replaced(LogicalPlan plan) {
    try {
      LogicalPlan marked = CopiedBlobs.marked(plan);
      marked = NullConditions.hidden(SelectiveFilter.inSubqueries(marked));
      marked = ComputedColumns.below(marked);
      Set joined = SelectiveFilter.joinedLeaves(marked);
      Map clustering = ClusteringColumns.ofLeaves(marked);
      Set computed = Failures.computedLeaves(marked);
      noteTables(marked);
      if (!SparkRelease.passesExpressions()) {
        marked = Failures.keptInOrder(marked);
      }
      return (LogicalPlan) marked.transform(new Replacement(joined, clustering, computed));
    } catch (Exception e) {
      Log.leftToSpark("plans", e);
    } catch (LinkageError e) {
      Log.leftToSpark("plans", e);
    }
    return plan;
  }

  /**
   * Notes the tables of a plan that reads several, so that their versions are looked up at once, and
   * whether it has other scans, too.
   */
  private static void noteTables(LogicalPlan plan) {
    List all = new ArrayList();
    int scans = 0;
    for (Iterator i = plan.collectLeaves().iterator(); i.hasNext(); ) {
      Object leaf = i.next();
      if (!(leaf instanceof LocalRelation || leaf instanceof OneRowRelation)) {
        scans++;
      }
      if (isOurs(leaf) || isReplaced(leaf)) {
        all.add(((DataSourceV2Relation) leaf).options().asCaseSensitiveMap());
      } else if (leaf instanceof DataSourceV2Relation
          && ((DataSourceV2Relation) leaf).table() instanceof NamedTable) {
        DataSourceV2Relation relation = (DataSourceV2Relation) leaf;
        CaseInsensitiveStringMap query = ScanMarks.without(relation.options());
        try {
          NamedTable table = (NamedTable) relation.table();
          all.add(table.with(query.asCaseSensitiveMap()).asCaseSensitiveMap());
        } catch (RuntimeException e) {
          // The scan raises the error.
          continue;
        }
      }
    }
    if (!all.isEmpty() && scans > 1) {
      Snapshot.ofQuery().noteOtherScans();
    }
    if (all.size() > 1) {
      Snapshot snapshot = Snapshot.ofQuery();
      for (int i = 0; i < all.size(); i++) {
        snapshot.note((Map) all.get(i));
      }
    }
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

  /** Returns whether the rule has replaced a table. */
  private static boolean isReplaced(Object leaf) {
    return leaf instanceof DataSourceV2Relation
        && ((DataSourceV2Relation) leaf).table() instanceof RequestTable;
  }

  /** Returns a plan whose tables by path send requests, so that those of equal paths are equal. */
  static LogicalPlan withRequests(LogicalPlan plan) {
    Replacement replacement =
        new Replacement(Collections.emptySet(), Collections.emptyMap(), Collections.emptySet());
    return (LogicalPlan) plan.transform(replacement);
  }

  static boolean isEnabled() {
    return Boolean.parseBoolean(SQLConf.get().getConfString(ENABLED, "true"));
  }

  /** Returns whether options ask for a change feed, whose reader takes no requests. */
  static boolean readsChanges(CaseInsensitiveStringMap options) {
    Object[] names = Constants.FEED_OPTIONS.toArray();
    for (int i = 0; i < names.length; i++) {
      if (options.containsKey((String) names[i])) {
        return true;
      }
    }
    return false;
  }

  static class Replacement extends Replacing {
    private final Set joined;
    private final Map clustering;
    private final Set computed;
    private Snapshot snapshot;

    /**
     * Makes a replacement of the tables in a plan, some of which are joined with others, some of
     * whose rows have to meet (ClusteringColumns), and some of whose rows are ordered late
     * (Failures).
     */
    Replacement(Set joined, Map clustering, Set computed) {
      this.joined = joined;
      this.clustering = clustering;
      this.computed = computed;
    }

    public boolean isDefinedAt(Object node) {
      return isOurs(node) || isMarkedByName(node) || Writes.hasText(node);
    }

    private boolean isMarkedByName(Object node) {
      if (!(node instanceof DataSourceV2Relation)
          || !(joined.contains(node)
              || clustering.containsKey(node)
              || computed.contains(node))) {
        return false;
      }
      DataSourceV2Relation relation = (DataSourceV2Relation) node;
      return relation.table() instanceof NamedTable
          && !((NamedTable) relation.table()).readsChanges(relation.options());
    }

    Object replaced(Object node) {
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
      DataSourceV2Relation relation = (DataSourceV2Relation) node;
      try {
        Table table = relation.table();
        if (isOurs(node)) {
          if (snapshot == null) {
            snapshot = Snapshot.ofQuery();
          }
          table = RequestTable.of((PythonTable) table, snapshot);
        }
        CaseInsensitiveStringMap options = relation.options();
        if (joined.contains(node)) {
          options = ScanMarks.with(options, ScanMarks.JOINED, "true");
        }
        if (clustering.containsKey(node)) {
          String names = (String) clustering.get(node);
          options = ScanMarks.with(options, ScanMarks.CLUSTERING, names);
        }
        if (computed.contains(node)) {
          options = ScanMarks.with(options, ScanMarks.COMPUTED, "true");
        }
        return SparkShims.relationOver(relation, table, options);
      } catch (Exception e) {
        Log.leftToSpark("relations", e);
      } catch (LinkageError e) {
        Log.leftToSpark("relations", e);
      }
      return relation;
    }
  }
}
