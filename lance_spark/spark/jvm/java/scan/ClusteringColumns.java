package org.lancespark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.internal.SQLConf;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The columns by which a query joins, groups or windows the rows of each table. Rows with the same
 * values of them have to meet, so that Spark shuffles them unless the scan reports that they do.
 */
final class ClusteringColumns {
  /** Spark's setting: whether it asks scans for their partitioning. */
  private static final String ENABLED = "spark.sql.sources.v2.bucketing.enabled";

  /**
   * Settings with which Spark before 4.3 can give wrong rows where scans report keys
   * (SPARK-53074, SPARK-55848, SPARK-58968, SPARK-58996, SPARK-59050).
   */
  private static final String[] UNSAFE = {
    "spark.sql.sources.v2.bucketing.shuffle.enabled",
    "spark.sql.sources.v2.bucketing.partiallyClusteredDistribution.enabled",
    "spark.sql.sources.v2.bucketing.allowJoinKeysSubsetOfPartitionKeys.enabled"
  };

  private ClusteringColumns() {}

  /**
   * Returns the JSON of the names by leaf: a list of columns for each join, aggregate and window
   * above the leaf, the nearest first. Leaves without any are left out.
   */
  static Map ofLeaves(LogicalPlan plan) {
    Map names = new IdentityHashMap();
    if (isOn(ENABLED) && (SparkRelease.keepsRowsOfKeys() || !isAnyOn(UNSAFE))) {
      visit(plan, new ArrayList(), names);
    }
    return names;
  }

  private static boolean isAnyOn(String[] settings) {
    for (int i = 0; i < settings.length; i++) {
      if (isOn(settings[i])) {
        return true;
      }
    }
    return false;
  }

  private static boolean isOn(String setting) {
    return Boolean.parseBoolean(SQLConf.get().getConfString(setting, "false"));
  }

  /**
   * Visits a node below others that make rows meet.
   *
   * @param above for each of these nodes, the nearest first, the position of its columns by their
   *     ids: both sides of a join have their columns in the order of the condition
   */
  private static void visit(LogicalPlan node, List above, Map names) {
    List positions = new ArrayList();
    if (node instanceof Join) {
      List conditions = new ArrayList();
      if (((Join) node).condition().isDefined()) {
        conditions.add(((Join) node).condition().get());
      }
      positions.add(positions(conditions));
    } else if (node instanceof Aggregate) {
      Seq keys = ((Aggregate) node).groupingExpressions();
      positions.add(positions(CollectionConverters.asJava(keys)));
    } else if (node instanceof Window) {
      Seq keys = ((Window) node).partitionSpec();
      positions.add(positions(CollectionConverters.asJava(keys)));
    }
    for (int i = 0; i < above.size(); i++) {
      Map renamed = new HashMap((Map) above.get(i));
      if (node instanceof Project) {
        addSources(((Project) node).projectList(), renamed);
      } else if (node instanceof Aggregate) {
        addSources(((Aggregate) node).aggregateExpressions(), renamed);
      }
      positions.add(renamed);
    }
    if (node.children().isEmpty()) {
      String json = json(node, positions);
      if (json != null) {
        names.put(node, json);
      }
    }
    for (int i = 0; i < node.children().size(); i++) {
      visit((LogicalPlan) node.children().apply(i), positions, names);
    }
  }

  /** Returns the positions of the columns in expressions, by their ids. */
  private static Map positions(List expressions) {
    Map positions = new HashMap();
    for (int i = 0; i < expressions.size(); i++) {
      Seq leaves = ((Expression) expressions.get(i)).collectLeaves();
      for (int n = 0; n < leaves.size(); n++) {
        if (leaves.apply(n) instanceof Attribute) {
          Object id = ((Attribute) leaves.apply(n)).exprId();
          if (!positions.containsKey(id)) {
            positions.put(id, Integer.valueOf(positions.size()));
          }
        }
      }
    }
    return positions;
  }

  /** Adds the columns that have other names above a projection. */
  private static void addSources(Seq expressions, Map positions) {
    for (int i = 0; i < expressions.size(); i++) {
      Object expression = expressions.apply(i);
      if (expression instanceof Alias && ((Alias) expression).child() instanceof Attribute) {
        Object position = positions.get(((Alias) expression).exprId());
        if (position != null) {
          positions.put(((Attribute) ((Alias) expression).child()).exprId(), position);
        }
      }
    }
  }

  /** Returns the names of the columns of a leaf for each node above it, or null without any. */
  private static String json(LogicalPlan leaf, List positions) {
    Set lists = new LinkedHashSet();
    for (int i = 0; i < positions.size(); i++) {
      Map ordered = new TreeMap();
      for (int n = 0; n < leaf.output().size(); n++) {
        Attribute attribute = (Attribute) leaf.output().apply(n);
        Object position = ((Map) positions.get(i)).get(attribute.exprId());
        if (position != null) {
          ordered.put(position, attribute.name());
        }
      }
      if (!ordered.isEmpty()) {
        lists.add(new ArrayList(ordered.values()));
      }
    }
    return lists.isEmpty() ? null : Forms.json(new ArrayList(lists));
  }
}
