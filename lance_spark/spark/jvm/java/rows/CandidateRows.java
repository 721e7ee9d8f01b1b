package org.lancespark;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.BROADCAST$;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction0;

/**
 * Joins the few rows of a small source with their rows of the table in one task. The rows of the
 * table that have a key of the source are collected while the statement is planned: one job, or none
 * if Python reads them. Otherwise Spark would shuffle both sides, and then the changed rows, each in
 * a job of its own that takes longer than the work on the rows.
 *
 * <p>Spark does not broadcast the table of a MERGE, because each task looks for rows that are matched
 * twice. Here one task has all rows of the source, and finds all matches of a row.
 */
final class CandidateRows extends Replacing {
  /** Most rows of the source. */
  private static final int MAX_KEYS = 2000;

  /** Rows of the table that are collected in any case, though there are fewer keys. */
  private static final int FEW_ROWS = 1000;

  private final SourceKeys keys;
  private final RowChange change;
  private final SparkSession session;
  private final int limit;

  private CandidateRows(SourceKeys keys, RowChange change, SparkSession session) {
    this.keys = keys;
    this.change = change;
    this.session = session;
    this.limit = Math.max(FEW_ROWS, keys.count);
  }

  /**
   * Returns the query of a MERGE that joins collected rows; the query itself if they are not
   * collected.
   *
   * @param keys the rule that has filtered the table by the keys of the source
   */
  static LogicalPlan joined(LogicalPlan query, SourceKeys keys, RowChange change) {
    SparkSession session = KeptSource.runningSession();
    if (session == null || keys.count == 0 || keys.count > MAX_KEYS) {
      return query;
    }
    try {
      return (LogicalPlan) query.transform(new CandidateRows(keys, change, session));
    } catch (KeptSource.Failure e) {
      throw Errors.rethrow(e.getCause());
    }
  }

  public boolean isDefinedAt(Object node) {
    return node instanceof Join
        && ((Join) node).condition().isDefined()
        && RowChangeRule.changeOf(keys.relation(((Join) node).left())) == change
        && isNarrow((Join) node);
  }

  Object replaced(Object node) {
    Join join = (Join) node;
    InternalRow[] rows = collected(join.left());
    if (rows.length > limit) {
      return node;
    }
    HintInfo broadcast = new HintInfo(Option.apply(BROADCAST$.MODULE$));
    try {
      return Versions.copy(
          join,
          new String[] {"left", "right", "hint"},
          new Object[] {
            new LocalRelation(
                join.left().output(),
                AssignedColumns.seq(Arrays.asList(rows)),
                false,
                Option.empty()),
            new Repartition(1, false, join.right()),
            new JoinHint(Option.apply(broadcast), Option.empty())
          });
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Returns whether the columns of the table are numbers, times and keys, which take few bytes. */
  private static boolean isNarrow(Join join) {
    Set compared = new HashSet();
    Expression condition = (Expression) join.condition().get();
    for (Iterator i = condition.references().iterator(); i.hasNext(); ) {
      compared.add(((Attribute) i.next()).exprId());
    }
    for (Iterator i = join.left().output().iterator(); i.hasNext(); ) {
      Attribute attribute = (Attribute) i.next();
      if (!Forms.isOfFixedSize(attribute.dataType()) && !compared.contains(attribute.exprId())) {
        return false;
      }
    }
    return true;
  }

  /** Returns the rows of the table, at least one more than the limit if there are more. */
  private InternalRow[] collected(LogicalPlan target) {
    Literal most = new Literal(Integer.valueOf(limit + 1), DataTypes.IntegerType);
    Snapshot.useFor(change.table);
    JobDescription.begin("lance merge: read the rows of the keys");
    try {
      QueryExecution query =
          KeptSource.rowsOf(session, new LocalLimit(most, target)).queryExecution();
      return (InternalRow[])
          SQLExecution.withNewExecutionId(
              query, Option.apply("rows with keys of a source"), new Collect(query.executedPlan()));
    } catch (Exception e) {
      throw new KeptSource.Failure(e);
    } finally {
      JobDescription.end();
      Snapshot.useFor(null);
    }
  }

  /** Collects the rows of a plan: a query of its own, as in KeptSource. */
  static final class Collect extends AbstractFunction0 {
    private final SparkPlan plan;

    Collect(SparkPlan plan) {
      this.plan = plan;
    }

    public Object apply() {
      return plan.executeCollect();
    }
  }
}
