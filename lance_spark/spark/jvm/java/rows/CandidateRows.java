package org.lancespark;

import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.catalyst.plans.logical.SHUFFLE_HASH$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;

/**
 * Joins the rows of a source of moderate size with their rows of the table in one task. The rows of
 * the table that have a key of the source are collected while the statement is planned: one job, or
 * none if Python reads them. Otherwise Spark would shuffle both sides, and then the changed rows,
 * each in a job of its own that takes longer than the work on the rows.
 *
 * <p>Spark does not broadcast the table of a MERGE, because each task looks for rows that are matched
 * twice. Here one task has all rows of the source, and finds all matches of a row. It makes the hash
 * table itself: both sides have one partition, so Spark moves no rows, and runs no job before.
 *
 * <p>Few keys are a filter of the table. Of more keys, Python is asked for the rows that have them;
 * if these are not for the driver, they are collected from the semi-join with the keys.
 */
final class CandidateRows extends Replacing {
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
    if (session == null || keys.count == 0 || keys.count > KeptSource.MAX_KEYS) {
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
        && RowChangeRule.changeOf(keys.relation(target(((Join) node).left()))) == change
        && isNarrow((Join) node);
  }

  Object replaced(Object node) {
    Join join = (Join) node;
    InternalRow[] rows = rows(join.left());
    if (rows == null || rows.length > limit) {
      return node;
    }
    HintInfo built = new HintInfo(Option.apply(SHUFFLE_HASH$.MODULE$));
    LogicalPlan candidates =
        new LocalRelation(
            join.left().output(), AssignedColumns.seq(Arrays.asList(rows)), false, Option.empty());
    try {
      return SparkShims.copy(
          join,
          new SparkField[] {SparkField.LEFT, SparkField.RIGHT, SparkField.HINT},
          new Object[] {
            new Repartition(1, false, candidates),
            new Repartition(1, false, join.right()),
            new JoinHint(Option.apply(built), Option.empty())
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

  /** Returns a plan without the semi-join that leaves the rows with keys of the source. */
  private LogicalPlan target(LogicalPlan plan) {
    return (LogicalPlan) plan.transform(new WithoutKeys(keys));
  }

  static final class WithoutKeys extends Replacing {
    private final SourceKeys keys;

    WithoutKeys(SourceKeys keys) {
      this.keys = keys;
    }

    public boolean isDefinedAt(Object node) {
      return node instanceof Join && keys.isJoinedBy((Join) node);
    }

    Object replaced(Object node) {
      return ((Join) node).left();
    }
  }

  /**
   * Returns the rows of the table, at least one more than the limit if there are more, or null.
   *
   * @param candidates the table with a filter, or a semi-join with the keys
   */
  private InternalRow[] rows(LogicalPlan candidates) {
    LogicalPlan target = target(candidates);
    Snapshot.useFor(change.table);
    JobDescription.begin("lance merge: read the rows of the keys");
    try {
      boolean isFiltered = target == candidates;
      LogicalPlan others = candidates;
      if (isFiltered || !keys.forms.isEmpty()) {
        LogicalPlan asked =
            isFiltered
                ? target
                : (LogicalPlan) target.transform(new Marked(keys.relation(target), keys.forms));
        LogicalPlan planned = SourceKeys.evaluated(asked);
        if (planned instanceof LocalRelation) {
          List rows = CollectionConverters.asJava(((LocalRelation) planned).data());
          return (InternalRow[]) rows.toArray(new InternalRow[rows.size()]);
        }
        // The scan of a filtered table is planned once.
        others = isFiltered ? planned : candidates;
      }
      Literal most = new Literal(Integer.valueOf(limit + 1), DataTypes.IntegerType);
      return collected(session, new LocalLimit(most, others), "rows with keys of a source");
    } catch (Exception e) {
      throw new KeptSource.Failure(e);
    } finally {
      JobDescription.end();
      Snapshot.useFor(null);
    }
  }

  /** Asks a relation for the rows that meet conditions of keys, if they are for the driver. */
  static final class Marked extends Replacing {
    private final DataSourceV2Relation relation;
    private final List forms;

    Marked(DataSourceV2Relation relation, List forms) {
      this.relation = relation;
      this.forms = forms;
    }

    public boolean isDefinedAt(Object node) {
      return node == relation;
    }

    Object replaced(Object node) {
      CaseInsensitiveStringMap options =
          ScanMarks.with(relation.options(), ScanMarks.KEYS, Forms.json(forms));
      try {
        return SparkShims.copy(relation, new SparkField[] {SparkField.OPTIONS}, new Object[] {options});
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  /** Runs a query of its own, as in KeptSource, and returns its rows. */
  static InternalRow[] collected(SparkSession session, LogicalPlan plan, String name) {
    QueryExecution query = KeptSource.rowsOf(session, plan).queryExecution();
    return (InternalRow[])
        SQLExecution.withNewExecutionId(
            query, Option.apply(name), new Collect(query.executedPlan()));
  }

  /** Collects the rows of a plan. */
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
