package org.lancespark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.ui.SparkListenerDriverAccumUpdates;
import org.apache.spark.util.AccumulatorV2;
import org.apache.spark.util.CollectionAccumulator;
import scala.Option;
import scala.Tuple2;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What the tasks of a scan have read. Each task sends a reply with a number for each counter, as
 * the value of a Python accumulator. Executors have Spark's own accumulator in place of this one,
 * which gets the values on the driver, and adds them to the counters of the scan in the plan.
 */
public class ReadCounts extends CollectionAccumulator {
  private static final long serialVersionUID = 1L;

  static final CustomMetric[] COUNTERS = {
    new StoreReads(), new BytesRead(), new FilesOpened(), new ReadTime(), new DecodeTime()
  };

  /** Part of the tasks after which the web interface is updated again. */
  private static final int UPDATES = 100;

  private volatile int tasks;
  private volatile String execution;
  private SQLMetric[] shown;
  private long[] waiting = new long[COUNTERS.length];
  private int done = 0;
  private int waitingTasks = 0;

  /** Makes the counters of a scan by a number of tasks. */
  ReadCounts(int tasks) {
    this.tasks = tasks;
  }

  /** Notes that another number of tasks runs than was planned. */
  void expect(int number) {
    tasks = number;
  }

  /** Notes the execution that runs the scan: that of this thread. */
  void begin() {
    execution = SparkContext.getOrCreate().getLocalProperty("spark.sql.execution.id");
  }

  /** Returns the accumulator that executors get. */
  public CollectionAccumulator copyAndReset() {
    return new CollectionAccumulator();
  }

  /** Takes the values of a task that has ended. */
  public synchronized void merge(AccumulatorV2 other) {
    List pickles = (List) other.value();
    for (int p = 0; p < pickles.size(); p++) {
      Reply reply = Reply.in((byte[]) pickles.get(p), "read");
      long[] numbers = reply == null ? new long[0] : reply.numbers("counts");
      for (int i = 0; i < numbers.length && i < waiting.length; i++) {
        waiting[i] += numbers[i];
      }
    }
    done++;
    waitingTasks++;
    // Spark's list of updates grows with each, and is copied.
    if (done >= tasks || waitingTasks * UPDATES >= done) {
      show();
    }
  }

  private void show() {
    if (shown == null) {
      shown = find();
    }
    if (shown == null) {
      return;
    }
    List updates = new ArrayList();
    for (int i = 0; i < shown.length; i++) {
      shown[i].add(waiting[i]);
      updates.add(new Tuple2(Long.valueOf(shown[i].id()), Long.valueOf(waiting[i])));
    }
    waiting = new long[COUNTERS.length];
    waitingTasks = 0;
    scala.collection.immutable.Seq all = CollectionConverters.asScala(updates).toSeq();
    SparkContext.getOrCreate()
        .listenerBus()
        .post(new SparkListenerDriverAccumUpdates(Long.parseLong(execution), all));
  }

  /** Returns the counters in the plan of the execution, or null if it does not run any more. */
  private SQLMetric[] find() {
    QueryExecution query =
        execution == null ? null : SQLExecution.getQueryExecution(Long.parseLong(execution));
    SparkPlan scan = query == null ? null : scanIn(query.executedPlan());
    if (scan == null) {
      return null;
    }
    SQLMetric[] found = new SQLMetric[COUNTERS.length];
    for (int i = 0; i < found.length; i++) {
      Option metric = scan.metrics().get(COUNTERS[i].name());
      if (metric.isEmpty()) {
        return null;
      }
      found[i] = (SQLMetric) metric.get();
    }
    return found;
  }

  private SparkPlan scanIn(QueryPlan node) {
    if (node instanceof BatchScanExec) {
      Object scan = ((BatchScanExec) node).scan();
      boolean isCounted = scan instanceof Counted && ((Counted) scan).counts() == this;
      return isCounted ? (SparkPlan) node : null;
    }
    if (node instanceof AdaptiveSparkPlanExec) {
      return scanIn(((AdaptiveSparkPlanExec) node).executedPlan());
    }
    if (node instanceof QueryStageExec) {
      return scanIn(((QueryStageExec) node).plan());
    }
    Seq[] groups = {node.children(), node.subqueries(), node.innerChildren()};
    for (int g = 0; g < groups.length; g++) {
      for (int i = 0; i < groups[g].size(); i++) {
        Object child = groups[g].apply(i);
        SparkPlan scan = child instanceof QueryPlan ? scanIn((QueryPlan) child) : null;
        if (scan != null) {
          return scan;
        }
      }
    }
    return null;
  }

  /** A scan whose tasks report what they read. */
  interface Counted {
    /** Returns the counters, or null if the scan is not planned. */
    ReadCounts counts();
  }
}
