package org.lancespark;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.Platform;

/** Reads the batches of a partition, which Spark's own reader of Python sources receives. */
final class ColumnarReader implements PartitionReader {
  private final PartitionReader rows;
  private final ArrowStreams streams;
  private ColumnarBatch batch;

  ColumnarReader(PartitionReader rows, StructType output) {
    this.rows = rows;
    this.streams = new ArrowStreams(output);
  }

  public boolean next() throws IOException {
    batch = rows.next() ? batchOf((InternalRow) rows.get()) : null;
    return batch != null;
  }

  public Object get() {
    return batch;
  }

  private ColumnarBatch batchOf(InternalRow row) {
    if (row instanceof UnsafeRow && ((UnsafeRow) row).getBaseObject() instanceof byte[]) {
      // Where the value lies in the row, which saves a copy.
      UnsafeRow written = (UnsafeRow) row;
      long place = written.getLong(0);
      long start = written.getBaseOffset() + (place >>> 32) - Platform.BYTE_ARRAY_OFFSET;
      return streams.read((byte[]) written.getBaseObject(), (int) start, (int) place);
    }
    byte[] bytes = row.getBinary(0);
    return streams.read(bytes, 0, bytes.length);
  }

  public void close() throws IOException {
    rows.close();
  }

  public CustomTaskMetric[] currentMetricsValues() {
    return rows.currentMetricsValues();
  }
}
