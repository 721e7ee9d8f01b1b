package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/**
 * Spark's own Python write, whose errors of planning and commit have no traceback, and which counts
 * what it has written.
 */
public class PathWriteBuilder implements SupportsTruncate {
  private WriteBuilder python;
  private final boolean shortErrors;
  private String name = "";

  /**
   * Makes a write.
   *
   * @param shortErrors whether errors lose their traceback here; if not, the caller reads them
   */
  PathWriteBuilder(WriteBuilder python, boolean shortErrors) {
    this.python = python;
    this.shortErrors = shortErrors;
  }

  /** Sets the name of the table that descriptions of jobs have. */
  PathWriteBuilder named(String table) {
    name = " " + table;
    return this;
  }

  public WriteBuilder truncate() {
    python = ((SupportsTruncate) python).truncate();
    return this;
  }

  public Write build() {
    return new PathWrite(this, python.build());
  }

  /** Returns the write of a batch query. */
  BatchWrite batch(BatchWrite python, WriteCounts counts) {
    return new PathBatch(python, counts, shortErrors);
  }

  public static class PathWrite implements Write {
    private final PathWriteBuilder builder;
    private final Write python;
    private final WriteCounts counts = new WriteCounts();

    PathWrite(PathWriteBuilder builder, Write python) {
      this.builder = builder;
      this.python = python;
    }

    public String description() {
      return python.description();
    }

    public BatchWrite toBatch() {
      BatchWrite batch = builder.batch(python.toBatch(), counts);
      JobDescription.begin("lance write" + builder.name);
      return batch;
    }

    public StreamingWrite toStreaming() {
      return new PathStream(python.toStreaming());
    }

    public CustomMetric[] supportedCustomMetrics() {
      return WriteCounts.with(python.supportedCustomMetrics());
    }

    public CustomTaskMetric[] reportDriverMetrics() {
      return counts.values();
    }

    public String toString() {
      return python.toString();
    }
  }

  public static class PathBatch implements BatchWrite {
    private final BatchWrite python;
    private final WriteCounts counts;
    private final boolean shortErrors;

    PathBatch(BatchWrite python, WriteCounts counts, boolean shortErrors) {
      this.python = python;
      this.counts = counts;
      this.shortErrors = shortErrors;
    }

    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      try {
        return ColumnarWriterFactory.of(python.createBatchWriterFactory(info));
      } catch (Exception e) {
        throw raised(e);
      }
    }

    private RuntimeException raised(Exception e) {
      return shortErrors ? Errors.raiseFromPython(e) : Errors.rethrow(e);
    }

    public boolean useCommitCoordinator() {
      return python.useCommitCoordinator();
    }

    public void onDataWriterCommit(WriterCommitMessage message) {
      python.onDataWriterCommit(message);
    }

    public void commit(WriterCommitMessage[] messages) {
      try {
        python.commit(messages);
        counts.count(messages);
      } catch (Exception e) {
        throw raised(e);
      } finally {
        JobDescription.end();
      }
    }

    public void abort(WriterCommitMessage[] messages) {
      JobDescription.end();
      python.abort(messages);
    }
  }

  /** Spark's own write of a stream, whose tasks send batches of columns. */
  public static class PathStream implements StreamingWrite {
    private final StreamingWrite python;

    PathStream(StreamingWrite python) {
      this.python = python;
    }

    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
      return ColumnarWriterFactory.ofStream(python.createStreamingWriterFactory(info));
    }

    public boolean useCommitCoordinator() {
      return python.useCommitCoordinator();
    }

    public void commit(long batch, WriterCommitMessage[] messages) {
      python.commit(batch, messages);
    }

    public void abort(long batch, WriterCommitMessage[] messages) {
      python.abort(batch, messages);
    }
  }
}
