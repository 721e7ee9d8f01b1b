package org.lancespark;

import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RequiresDistributionAndOrdering;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;

/**
 * Writes changed rows by Spark's own writer for Python, and commits them by a call of Python, whose
 * reply says whether the statement must be planned again.
 */
public class RowChangeWrite implements WriteBuilder, RequiresDistributionAndOrdering, BatchWrite {
  private final Write python;
  private final RowChange change;
  private final Map write;
  private BatchWrite batch;
  private boolean commitAttempted;

  RowChangeWrite(Write python, RowChange change, Map write) {
    this.python = python;
    this.change = change;
    this.write = write;
  }

  public Write build() {
    return this;
  }

  public String description() {
    return change.description();
  }

  public Distribution requiredDistribution() {
    if (isInOneTask() || isInScanOrder()) {
      return Distributions.unspecified();
    }
    return Distributions.clustered(new Expression[] {Expressions.column(Clustering.COLUMN)});
  }

  /** New rows come last: they then share a fragment with the rows that move. */
  public SortOrder[] requiredOrdering() {
    if (isInScanOrder()) {
      return new SortOrder[0];
    }
    return new SortOrder[] {
      Expressions.sort(
          Expressions.column(RowChange.ADDRESS),
          SortDirection.ASCENDING,
          NullOrdering.NULLS_LAST)
    };
  }

  /** Rows of the query are shorter than the rows that are written: Python says by how much. */
  public long advisoryPartitionSizeInBytes() {
    return isInOneTask() || isInScanOrder() ? 0 : ((Number) write.get("partition_bytes")).longValue();
  }

  /** Returns whether one task has all changed rows (CandidateRows), so that none are distributed. */
  private boolean isInOneTask() {
    return Boolean.TRUE.equals(write.get("in_one_task"));
  }

  /** Returns whether the tasks that scan the rows write them (WritingScan). */
  private boolean isInScanOrder() {
    return Boolean.TRUE.equals(write.get("in_scan_order"));
  }

  public CustomMetric[] supportedCustomMetrics() {
    return WriteCounts.with(python.supportedCustomMetrics());
  }

  public CustomTaskMetric[] reportDriverMetrics() {
    return change.counts.values();
  }

  public BatchWrite toBatch() {
    batch = python.toBatch();
    JobDescription.begin(change.jobDescription());
    return this;
  }

  public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
    return ColumnarWriterFactory.of(batch.createBatchWriterFactory(info));
  }

  public boolean useCommitCoordinator() {
    return true;
  }

  public void commit(WriterCommitMessage[] messages) {
    try {
      commitChanges(messages);
    } finally {
      JobDescription.end();
    }
  }

  private void commitChanges(WriterCommitMessage[] messages) {
    commitAttempted = true;
    // A statement that is planned again counts what its last attempt has written.
    change.counts.count(messages);
    Map reply = PythonCall.reply("commit_row_changes", arguments(messages));
    Map error = (Map) reply.get("error");
    if (error != null
        && (!"planned_again".equals(error.get("kind")) || !Replanning.run(change))) {
      Errors.raise(error, null, null);
    }
    change.table.isChanged = true;
  }

  public void abort(WriterCommitMessage[] messages) {
    JobDescription.end();
    Map arguments = arguments(new WriterCommitMessage[0]);
    arguments.put("commit_attempted", Boolean.valueOf(commitAttempted));
    PythonCall.reply("abort_row_changes", arguments);
  }

  public String toString() {
    String text = change.description() + " of version " + change.table.version;
    List given = (List) write.get("given");
    return change.command() == RowLevelOperation.Command.DELETE
        ? text
        : text + ", columns " + (given.isEmpty() ? write.get("columns") : given);
  }

  private Map arguments(WriterCommitMessage[] messages) {
    List pickles = new ArrayList();
    for (int i = 0; i < messages.length; i++) {
      if (messages[i] != null) {
        byte[] pickle = ((PythonWriterCommitMessage) messages[i]).pickledMessage();
        pickles.add(Base64.getEncoder().encodeToString(pickle));
      }
    }
    Map arguments = new LinkedHashMap();
    arguments.put("options", change.table.with(new HashMap()).asCaseSensitiveMap());
    arguments.put("write", write);
    arguments.put("messages", pickles);
    return arguments;
  }
}
