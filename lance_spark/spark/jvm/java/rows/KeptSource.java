package org.lancespark;

import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.Dependency;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Range;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.storage.RDDInfo;
import org.apache.spark.storage.StorageLevel;
import scala.Option;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;

/**
 * The rows of a source of a MERGE that is not part of the plan, such as a file. They are computed
 * while the statement is planned, and kept by executors (localCheckpoint), so that the keys are
 * those of the rows that are joined. EXPLAIN computes no rows.
 *
 * <p>A source is kept if it reads few bytes, rows of the program or a batch of a stream, or if it
 * has few rows and is a projection of something whose first rows cost little. The rows of the last
 * are counted before: this reads no more rows than the limit. Few rows of very few bytes become part
 * of the plan, which takes one job less.
 */
final class KeptSource {
  /** Most bytes, by Spark's estimate, that a source reads whose first rows are not counted before. */
  private static final double MAX_BYTES = 64.0 * 1024 * 1024;

  /** Most bytes, by Spark's estimate, that a source reads whose rows become part of the plan. */
  private static final double MAX_PLAN_BYTES = 1024.0 * 1024;

  /** Spark estimates rows of an unknown size as so many bytes, or some of them, or more. */
  private static final double UNKNOWN_BYTES = Math.pow(2, 50);

  /** The property of threads that run a function of foreachBatch. */
  private static final String STREAM_BATCH = "streaming.sql.batchId";

  /** Most rows whose keys are collected on the driver. */
  static final int MAX_KEYS = 200000;

  /** Most bytes of the rows, as they are kept, that one task joins and writes. */
  private static final long MAX_TASK_BYTES = 64L * 1024 * 1024;

  /** Most rows whose keys are sent to each executor. */
  private static final long MAX_BROADCAST_ROWS = 2000000;

  /** Most bytes of the rows, as they are kept, if keys may be long, such as strings. */
  private static final long MAX_BROADCAST_BYTES = 128L * 1024 * 1024;

  /** The plan that returns the rows. */
  final LogicalPlan plan;

  /** The columns of the keys, or null if there are too many rows. */
  final LocalRelation keys;

  /** Whether the keys are so few that each executor may get them. */
  final boolean isBroadcast;

  private KeptSource(LogicalPlan plan, LocalRelation keys, boolean isBroadcast) {
    this.plan = plan;
    this.keys = keys;
    this.isBroadcast = isBroadcast;
  }

  /** An error of the source, which is that of the statement. */
  static final class Failure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    Failure(Throwable cause) {
      super(cause);
    }
  }

  /**
   * Computes the rows of a source, if it is small.
   *
   * @param columns attributes of the source that keys are made of
   * @return null if the source is joined as it is
   */
  static KeptSource of(LogicalPlan source, List columns, int maxRows) {
    if (columns.isEmpty() || source.isStreaming() || !hasOnly(source, SparkClasses.STEPS)) {
      return null;
    }
    boolean readsFew = bytesRead(source) <= MAX_BYTES;
    if (!readsFew && !(hasOnly(source, new HashSet()) && hasCheapLeaves(source))) {
      return null;
    }
    SparkSession session = runningSession();
    if (session == null) {
      return null;
    }
    Snapshot.useFor(RowChangeRule.changedTable());
    JobDescription.begin("lance merge: read the keys of the source");
    try {
      if (readsFew && !hasGivenRows(source) && bytesRead(source) <= MAX_PLAN_BYTES) {
        LocalRelation local = planRows(session, source, maxRows);
        if (local != null) {
          return new KeptSource(local, local, true);
        }
      }
      if (!readsFew && firstRows(session, source, columns, maxRows + 1).length > maxRows) {
        return null;
      }
      // Counters of scans look for the query that runs them (Take).
      boolean isEager = hasScans(source);
      LogicalPlan kept =
          SparkShims.checkpointed(rowsOf(session, source), isEager, level()).logicalPlan();
      RDD rdd = ((LogicalRDD) kept).rdd();
      if (!isEager) {
        // The job that keeps the rows returns the keys, too, if they are few.
        int most = maxRows / Math.max(1, rdd.getNumPartitions()) + 1;
        InternalRow[] few = allRows(session, kept, columns, most);
        if (few.length < most) {
          return new KeptSource(kept, localRows(columns, few), true);
        }
      }
      boolean isSmall = keptBytes(rdd) <= MAX_TASK_BYTES;
      int maxKeys = isSmall ? MAX_KEYS : maxRows;
      InternalRow[] rows =
          isSmall
              ? allRows(session, kept, columns, maxKeys + 1)
              : firstRows(session, kept, columns, maxKeys + 1);
      LocalRelation keys = rows.length > maxKeys ? null : localRows(columns, rows);
      boolean isBroadcast = keys != null || isBroadcast(rdd, columns);
      return new KeptSource(kept, keys, isBroadcast);
    } catch (InvocationTargetException e) {
      throw new Failure(e.getCause());
    } catch (Exception e) {
      throw new Failure(e);
    } finally {
      JobDescription.end();
      Snapshot.useFor(null);
    }
  }

  private static boolean isBroadcast(RDD rows, List columns) {
    return rows.count() <= MAX_BROADCAST_ROWS
        && (areNumbers(columns) || keptBytes(rows) <= MAX_BROADCAST_BYTES);
  }

  private static boolean areNumbers(List columns) {
    for (int i = 0; i < columns.size(); i++) {
      if (!Forms.isOfFixedSize(((Attribute) columns.get(i)).dataType())) {
        return false;
      }
    }
    return true;
  }

  private static long keptBytes(RDD rdd) {
    RDDInfo[] all = rdd.sparkContext().getRDDStorageInfo();
    for (int i = 0; i < all.length; i++) {
      if (all[i].id() == rdd.id()) {
        return all[i].memSize() + all[i].diskSize();
      }
    }
    return Long.MAX_VALUE;
  }

  /** Returns all rows of a source; null if there are too many, or they are too large. */
  private static LocalRelation planRows(SparkSession session, LogicalPlan source, int maxRows)
      throws Exception {
    List columns = CollectionConverters.asJava(source.output());
    try {
      InternalRow[] rows = allRows(session, source, columns, maxRows + 1);
      return rows.length > maxRows ? null : localRows(columns, rows);
    } catch (Exception e) {
      // Few bytes can become long values, such as by repeat().
      if (String.valueOf(e.getMessage()).contains("spark.driver.maxResultSize")) {
        return null;
      }
      throw e;
    }
  }

  private static LocalRelation localRows(List columns, InternalRow[] rows) {
    return new LocalRelation(
        AssignedColumns.seq(columns),
        AssignedColumns.seq(Arrays.asList(rows)),
        false,
        Option.empty());
  }

  /** Returns where rows are kept: on two executors, so that one may be lost, if there are two. */
  private static StorageLevel level() {
    // The driver counts, too.
    boolean hasSeveral = SparkContext.getOrCreate().getExecutorMemoryStatus().size() > 2;
    return hasSeveral ? StorageLevel.MEMORY_AND_DISK_2() : StorageLevel.MEMORY_AND_DISK();
  }

  /** Returns the session that runs a statement that writes; null if the statement is explained. */
  static SparkSession runningSession() {
    QueryExecution execution = RowChangeRule.running();
    return execution != null && execution.analyzed() instanceof V2WriteCommand
        ? execution.sparkSession()
        : null;
  }

  /**
   * Returns whether a plan has only some operators beside projections, and no functions of users,
   * which may take long, and no subqueries.
   */
  private static boolean hasOnly(LogicalPlan plan, Set operators) {
    if (plan.children().isEmpty()) {
      return !(plan instanceof CTERelationRef);
    }
    if (!(plan instanceof Project) && !operators.contains(SparkClasses.of(plan))) {
      return false;
    }
    for (Iterator i = plan.expressions().iterator(); i.hasNext(); ) {
      if (!isPlain((Expression) i.next())) {
        return false;
      }
    }
    for (Iterator i = plan.children().iterator(); i.hasNext(); ) {
      if (!hasOnly((LogicalPlan) i.next(), operators)) {
        return false;
      }
    }
    return true;
  }

  /** Returns whether an expression has no functions of users and no subqueries. */
  static boolean isPlain(Expression expression) {
    if (expression instanceof UserDefinedExpression || expression instanceof PlanExpression) {
      return false;
    }
    for (Iterator i = expression.children().iterator(); i.hasNext(); ) {
      if (!isPlain((Expression) i.next())) {
        return false;
      }
    }
    return true;
  }

  /** Returns whether the first rows of all inputs cost little, so that they may be read twice. */
  private static boolean hasCheapLeaves(LogicalPlan source) {
    for (Iterator i = source.collectLeaves().iterator(); i.hasNext(); ) {
      Object leaf = i.next();
      boolean isCheap = leaf instanceof LocalRelation || leaf instanceof Range;
      if (leaf instanceof LogicalRelation) {
        isCheap = ((LogicalRelation) leaf).relation() instanceof HadoopFsRelation;
      } else if (leaf instanceof DataSourceV2Relation) {
        Object table = ((DataSourceV2Relation) leaf).table();
        isCheap = table instanceof NamedTable || table instanceof RequestTable;
      } else if (leaf instanceof LogicalRDD) {
        isCheap = isMadeOf(((LogicalRDD) leaf).rdd(), SparkClasses.STORED_RDDS);
      }
      if (!isCheap) {
        return false;
      }
    }
    return true;
  }

  private static boolean isMadeOf(RDD rdd, Set classes) {
    if (!classes.contains(SparkClasses.of(rdd))) {
      return false;
    }
    for (Iterator i = rdd.dependencies().iterator(); i.hasNext(); ) {
      if (!isMadeOf(((Dependency) i.next()).rdd(), classes)) {
        return false;
      }
    }
    return true;
  }

  /** Returns whether a plan scans tables of data sources. */
  private static boolean hasScans(LogicalPlan source) {
    for (Iterator i = source.collectLeaves().iterator(); i.hasNext(); ) {
      Object leaf = i.next();
      if (leaf instanceof DataSourceV2Relation || leaf instanceof DataSourceV2ScanRelation) {
        return true;
      }
    }
    return false;
  }

  private static boolean hasGivenRows(LogicalPlan source) {
    for (Iterator i = source.collectLeaves().iterator(); i.hasNext(); ) {
      if (i.next() instanceof LogicalRDD) {
        return true;
      }
    }
    return false;
  }

  /**
   * Returns the bytes that a plan reads by Spark's estimate: none for rows of the program, and for
   * a batch of a stream whose size Spark does not know. A query of this plan would write such a
   * batch to disk for a shuffle, and computes it once; so does this class.
   */
  private static double bytesRead(LogicalPlan source) {
    boolean isInBatch = SparkContext.getOrCreate().getLocalProperty(STREAM_BATCH) != null;
    double bytes = 0;
    for (Iterator i = source.collectLeaves().iterator(); i.hasNext(); ) {
      LogicalPlan leaf = (LogicalPlan) i.next();
      double size = leaf.stats().sizeInBytes().doubleValue();
      boolean isGiven =
          leaf instanceof LogicalRDD
              && (isInBatch && size >= UNKNOWN_BYTES
                  || isMadeOf(((LogicalRDD) leaf).rdd(), SparkClasses.GIVEN_RDDS));
      bytes += isGiven ? 0 : size;
    }
    return bytes;
  }

  private static InternalRow[] firstRows(
      SparkSession session, LogicalPlan plan, List columns, int count) {
    LogicalPlan chosen = new Project(AssignedColumns.seq(new ArrayList(columns)), plan);
    QueryExecution query = rowsOf(session, chosen).queryExecution();
    Take take = new Take(query.executedPlan(), count);
    return (InternalRow[])
        SQLExecution.withNewExecutionId(query, Option.apply("keys of a source"), take);
  }

  /** Reads some columns of all rows, at most a number of rows of each partition, in one job. */
  private static InternalRow[] allRows(
      SparkSession session, LogicalPlan plan, List columns, int most) {
    LogicalPlan chosen = new Project(AssignedColumns.seq(new ArrayList(columns)), plan);
    Literal limit = new Literal(Integer.valueOf(most), DataTypes.IntegerType);
    return CandidateRows.collected(session, new LocalLimit(limit, chosen), "keys of a source");
  }

  /**
   * Reads the first rows of a plan. It is a query of its own: counters of scans (ReadCounts) look
   * for the plan of their query, and the plan of the statement is not complete.
   */
  static final class Take extends AbstractFunction0 {
    private final SparkPlan plan;
    private final int count;

    Take(SparkPlan plan, int count) {
      this.plan = plan;
      this.count = count;
    }

    public Object apply() {
      return plan.executeTake(count);
    }
  }

  /** Returns the rows of a plan that Spark has optimized already. */
  static Dataset rowsOf(SparkSession session, LogicalPlan plan) {
    plan.setAnalyzed();
    return Dataset$.MODULE$.ofRows(session, plan);
  }
}
