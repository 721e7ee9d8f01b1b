package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;

/**
 * What the tasks of a write have written. The pickle of each message holds a reply with a number for
 * each counter.
 */
final class WriteCounts {
  private static final CustomMetric[] COUNTERS = {
    new RowsInserted(),
    new RowsUpdated(),
    new RowsDeleted(),
    new FragmentsWritten(),
    new FilesWritten(),
    new BytesWritten()
  };

  private volatile long[] sums = new long[COUNTERS.length];

  /** Returns the counters of a write of Spark and of this package. */
  static CustomMetric[] with(CustomMetric[] others) {
    return Metrics.with(others, COUNTERS);
  }

  /** Counts the messages of all tasks, instead of those before. */
  void count(WriterCommitMessage[] messages) {
    long[] counted = new long[COUNTERS.length];
    for (int i = 0; i < messages.length; i++) {
      if (messages[i] instanceof PythonWriterCommitMessage) {
        byte[] pickle = ((PythonWriterCommitMessage) messages[i]).pickledMessage();
        Reply reply = Reply.in(pickle, "written");
        long[] numbers = reply == null ? new long[0] : reply.numbers("counts");
        for (int n = 0; n < numbers.length && n < counted.length; n++) {
          counted[n] += numbers[n];
        }
      }
    }
    sums = counted;
  }

  CustomTaskMetric[] values() {
    if (!Metrics.areOnClassPath()) {
      return new CustomTaskMetric[0];
    }
    CustomTaskMetric[] values = new CustomTaskMetric[COUNTERS.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = new Metrics.Value(COUNTERS[i].name(), sums[i]);
    }
    return values;
  }
}
