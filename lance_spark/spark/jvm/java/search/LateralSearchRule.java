package org.lancespark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.KnownNullable;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.OuterReference;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LateralJoin;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * Plans LATERAL lance_vector_search(table, u.vector, ...) as LanceTable.nearest_join does: one search
 * for the vectors of all rows of the left side.
 *
 * <p>SearchFunction makes a filter with the vector over a table that cannot be read; the filter has
 * the columns of the search. This rule replaces both, together with the join.
 */
public class LateralSearchRule extends Rule {
  public TreeNode apply(TreeNode plan) {
    return (TreeNode) ((LogicalPlan) plan).resolveOperators(new Replacement());
  }

  static class Replacement extends Replacing {
    public boolean isDefinedAt(Object node) {
      return node instanceof LateralJoin
          && ((LateralJoin) node).resolved()
          && search(lateral(node)) != null;
    }

    Object replaced(Object node) {
      LateralJoin join = (LateralJoin) node;
      LogicalPlan left = (LogicalPlan) SparkField.LEFT.of(join);
      String type = join.joinType().sql();
      boolean keepsAll = type.equals("LEFT OUTER");
      if (left.isStreaming()
          || join.condition().isDefined() && keepsAll
          || !(keepsAll || type.equals("INNER") || type.equals("CROSS"))) {
        throw refused();
      }
      LogicalPlan rows = joined(left, lateral(node), keepsAll);
      return join.condition().isDefined()
          ? new Filter((Expression) join.condition().get(), rows)
          : rows;
    }
  }

  static RuntimeException refused() {
    return Errors.unchecked(
        "LATERAL lance_vector_search takes the vectors of an inner or left join, under columns that"
            + " the query chooses; use LanceTable.nearest_join, or put other conditions above");
  }

  private static LogicalPlan lateral(Object join) {
    Object right = SparkField.RIGHT.of(join);
    return (LogicalPlan) SparkField.PLAN.of(right);
  }

  /** Returns the filter that stands for a search, under names and lists of columns, or null. */
  private static Filter search(LogicalPlan plan) {
    while (plan instanceof SubqueryAlias || plan instanceof Project) {
      plan = (LogicalPlan) plan.children().apply(0);
    }
    return plan instanceof Filter && table(plan) != null ? (Filter) plan : null;
  }

  private static LateralTable table(LogicalPlan plan) {
    for (Iterator i = plan.collectLeaves().iterator(); i.hasNext(); ) {
      Object leaf = i.next();
      if (leaf instanceof DataSourceV2Relation
          && ((DataSourceV2Relation) leaf).table() instanceof LateralTable) {
        return (LateralTable) ((DataSourceV2Relation) leaf).table();
      }
    }
    return null;
  }

  private static LogicalPlan joined(LogicalPlan left, LogicalPlan plan, boolean keepsAll) {
    if (plan instanceof SubqueryAlias) {
      return joined(left, (LogicalPlan) plan.children().apply(0), keepsAll);
    }
    if (plan instanceof Project) {
      LogicalPlan rows = joined(left, (LogicalPlan) plan.children().apply(0), keepsAll);
      List columns = new ArrayList();
      for (Iterator i = left.output().iterator(); i.hasNext(); ) {
        columns.add(i.next());
      }
      for (Iterator i = ((Project) plan).projectList().iterator(); i.hasNext(); ) {
        columns.add(((Expression) i.next()).transformUp(new Inner()));
      }
      return new Project(AssignedColumns.seq(columns), rows);
    }
    Filter search = (Filter) plan;
    Expression vector =
        (Expression) ((Expression) search.condition().children().apply(0)).transformUp(new Inner());
    if (!vector.deterministic() || !vector.references().subsetOf(left.outputSet())) {
      throw refused();
    }
    Map arguments = new HashMap(table(search).join);
    arguments.put("how", keepsAll ? "left" : "inner");
    arguments.put("settings", RequestScanBuilder.nearestSettings());
    LogicalPlan queries = NearestJoinRule.renamed(left, vector);
    Dataset frame = Dataset$.MODULE$.ofRows(SparkSession.active(), queries);
    Dataset found = (Dataset) SessionCallback.exchanged("join_nearest", arguments, frame);
    List names = (List) arguments.get("columns");
    return withColumns(left, search, found.queryExecution().analyzed(), names);
  }

  /** Returns the rows of a join with the columns of its left side and of the search. */
  private static LogicalPlan withColumns(
      LogicalPlan left, LogicalPlan search, LogicalPlan rows, List names) {
    int queries = left.output().size();
    List columns = new ArrayList();
    for (int i = 0; i < queries + search.output().size(); i++) {
      Attribute wanted =
          (Attribute) (i < queries ? left.output().apply(i) : search.output().apply(i - queries));
      // The columns of the table come after the vector, and then the distance.
      int found = names.indexOf(wanted.name());
      int place = i < queries ? i : queries + 1 + (found < 0 ? names.size() : found);
      Attribute column = (Attribute) rows.output().apply(place);
      if (!column.dataType().equals(wanted.dataType())) {
        throw refused();
      }
      columns.add(
          new Alias(
              column.nullable() ? (Expression) column : new KnownNullable(column),
              wanted.name(),
              wanted.exprId(),
              wanted.qualifier(),
              Option.apply(wanted.metadata()),
              (Seq) Nil$.MODULE$));
    }
    return new Project(AssignedColumns.seq(columns), rows);
  }

  /** Replaces references to the outer query by its columns. */
  static class Inner extends Replacing {
    public boolean isDefinedAt(Object node) {
      return node instanceof OuterReference;
    }

    Object replaced(Object node) {
      return (NamedExpression) SparkField.E.of(node);
    }
  }
}
