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
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/**
 * Spark's own Python write, whose errors of planning and commit have no traceback, and which counts
 * what it has written.
 */
public class PathWriteBuilder implements SupportsTruncate {
  private WriteBuilder python;

  PathWriteBuilder(WriteBuilder python) {
    this.python = python;
  }

  public WriteBuilder truncate() {
    python = ((SupportsTruncate) python).truncate();
    return this;
  }

  public Write build() {
    return new PathWrite(python.build());
  }

  public static class PathWrite implements Write {
    private final Write python;
    private final WriteCounts counts = new WriteCounts();

    PathWrite(Write python) {
      this.python = python;
    }

    public String description() {
      return python.description();
    }

    public BatchWrite toBatch() {
      return new PathBatch(python.toBatch(), counts);
    }

    public StreamingWrite toStreaming() {
      return python.toStreaming();
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

    PathBatch(BatchWrite python, WriteCounts counts) {
      this.python = python;
      this.counts = counts;
    }

    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      try {
        return python.createBatchWriterFactory(info);
      } catch (Exception e) {
        throw Errors.raiseFromPython(e);
      }
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
        throw Errors.raiseFromPython(e);
      }
    }

    public void abort(WriterCommitMessage[] messages) {
      python.abort(messages);
    }
  }
}
