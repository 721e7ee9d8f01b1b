package org.lancespark;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads the batches of a partition. Spark's own reader of Python sources receives a row for each:
 * the batch, or the place in shared memory where the worker has put it.
 */
final class ColumnarReader implements PartitionReader {
  /** Columns of the rows. */
  static final StructType SENT =
      new StructType()
          .add("memory", DataTypes.StringType, true)
          .add("id", DataTypes.LongType, false)
          .add("number", DataTypes.LongType, false)
          .add("offset", DataTypes.LongType, false)
          .add("length", DataTypes.IntegerType, false)
          .add("batch", DataTypes.BinaryType, false);

  private static final int MEMORY = 0;
  private static final int ID = 1;
  private static final int NUMBER = 2;
  private static final int OFFSET = 3;
  private static final int LENGTH = 4;
  private static final int BATCH = 5;

  private final PartitionReader rows;
  private final ArrowStreams streams;
  private ColumnarBatch batch;

  /** The memory that holds the current batch, or null; and the number of the batch. */
  private SharedMemory memory;

  private long number;

  /** Whether the task is over. A thread that feeds a script or a function may still read rows. */
  private volatile boolean isClosed;

  ColumnarReader(PartitionReader rows, StructType output) {
    this.rows = rows;
    this.streams = new ArrowStreams(output);
  }

  public boolean next() throws IOException {
    if (memory != null && !isClosed) {
      memory.release(number);
    }
    memory = null;
    batch = rows.next() ? batchOf((InternalRow) rows.get()) : null;
    return batch != null;
  }

  public Object get() {
    return batch;
  }

  private ColumnarBatch batchOf(InternalRow row) {
    UTF8String name = row.getUTF8String(MEMORY);
    SharedMemory named =
        name == null ? null : SharedMemory.open(name.toString(), row.getLong(ID));
    int length = row.getInt(LENGTH);
    if (length == 0) {
      return sent(row);
    }
    if (named == null) {
      throw new IllegalStateException(
          "the memory "
              + name
              + " of a Python worker, which this JVM has mapped before, cannot be mapped; set "
              + ColumnarFactory.SHARED_MEMORY
              + " to false");
    }
    memory = named;
    number = row.getLong(NUMBER);
    return streams.read(memory, memory.address(row.getLong(OFFSET), length), length);
  }

  private ColumnarBatch sent(InternalRow row) {
    if (row instanceof UnsafeRow && ((UnsafeRow) row).getBaseObject() instanceof byte[]) {
      // Where the value lies in the row, which saves a copy.
      UnsafeRow written = (UnsafeRow) row;
      long place = written.getLong(BATCH);
      long start = written.getBaseOffset() + (place >>> 32) - Platform.BYTE_ARRAY_OFFSET;
      return streams.read((byte[]) written.getBaseObject(), (int) start, (int) place);
    }
    byte[] bytes = row.getBinary(BATCH);
    return streams.read(bytes, 0, bytes.length);
  }

  /**
   * Ends the reading. The worker does not get the place of the current batch back: a thread may
   * read it still. The worker has rows left, so that Spark does not use it again.
   */
  public void close() throws IOException {
    isClosed = true;
    streams.close();
    SharedMemory.forgetEnded();
    rows.close();
  }

  public CustomTaskMetric[] currentMetricsValues() {
    return rows.currentMetricsValues();
  }
}
