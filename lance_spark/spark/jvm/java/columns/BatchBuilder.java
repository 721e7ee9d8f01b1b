package org.lancespark;

import java.util.Iterator;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;

/**
 * Puts rows into batches, each of which is the only value of a row.
 *
 * <pre>
 *   int64    rows of the batch
 *   int64    number of columns C, children included, depth first
 *   int64    number of buffers B
 *   int64    for each of C: its number of values, its number of nulls
 *   int64    for each of B: where it begins in the value, its number of bytes
 *   bytes    the buffers, each from a multiple of 64 bytes on
 * </pre>
 *
 * <p>The buffers of a column are the buffers of an Arrow array: validity (empty without nulls),
 * offsets, values.
 */
final class BatchBuilder implements Iterator {
  static final long MAX_BYTES = Integer.MAX_VALUE - 64L;

  private static final int MAX_ROWS = 65536;
  private static final int ALIGNMENT = 64;

  /** Bytes after which a batch ends. */
  private static final long BATCH_BYTES = 4L << 20;

  /** Rows between two looks at the size of a batch, if they are not large. */
  private static final int STEP = 64;

  private final Iterator rows;
  private final ColumnBuilder[] columns;
  private long[] nodes = new long[32];
  private int nodeCount;
  private byte[][] buffers = new byte[32][];
  private int[] sizes = new int[32];
  private int bufferCount;

  BatchBuilder(Iterator rows, StructType schema) {
    this.rows = rows;
    this.columns = builders(schema);
  }

  /** Returns a builder for each column, or null if the type of one has none. */
  static ColumnBuilder[] builders(StructType schema) {
    StructField[] fields = schema.fields();
    ColumnBuilder[] builders = new ColumnBuilder[fields.length];
    for (int i = 0; i < fields.length; i++) {
      builders[i] = ColumnBuilder.of(fields[i].dataType());
      if (builders[i] == null) {
        return null;
      }
    }
    return builders;
  }

  public boolean hasNext() {
    return rows.hasNext();
  }

  public Object next() {
    long count = 0;
    boolean isFull = false;
    while (!isFull && count < MAX_ROWS && rows.hasNext()) {
      InternalRow row = (InternalRow) rows.next();
      for (int i = 0; i < columns.length; i++) {
        columns[i].add(row, i);
      }
      count++;
      boolean isLarge =
          !(row instanceof UnsafeRow) || ((UnsafeRow) row).getSizeInBytes() >= BATCH_BYTES / STEP;
      isFull = (isLarge || count % STEP == 0) && size() >= BATCH_BYTES;
    }
    return new GenericInternalRow(new Object[] {batch(count)});
  }

  public void remove() {
    throw new UnsupportedOperationException();
  }

  private long size() {
    long size = 0;
    for (int i = 0; i < columns.length; i++) {
      size += columns[i].size();
    }
    return size;
  }

  private byte[] batch(long count) {
    nodeCount = 0;
    bufferCount = 0;
    for (int i = 0; i < columns.length; i++) {
      columns[i].finish(this);
    }
    long[] header = new long[3 + nodeCount + 2 * bufferCount];
    header[0] = count;
    header[1] = nodeCount / 2;
    header[2] = bufferCount;
    System.arraycopy(nodes, 0, header, 3, nodeCount);
    long end = aligned(header.length * 8L);
    for (int i = 0; i < bufferCount; i++) {
      header[3 + nodeCount + 2 * i] = end;
      header[4 + nodeCount + 2 * i] = sizes[i];
      end = aligned(end + sizes[i]);
    }
    if (end > MAX_BYTES) {
      throw new IllegalStateException(
          "a batch has more than 2 GiB: set " + ColumnarFactory.ENABLED + " to false");
    }
    byte[] bytes = new byte[(int) end];
    Platform.copyMemory(
        header,
        Platform.LONG_ARRAY_OFFSET,
        bytes,
        Platform.BYTE_ARRAY_OFFSET,
        header.length * 8L);
    for (int i = 0; i < bufferCount; i++) {
      System.arraycopy(buffers[i], 0, bytes, (int) header[3 + nodeCount + 2 * i], sizes[i]);
    }
    for (int i = 0; i < columns.length; i++) {
      columns[i].clear();
    }
    return bytes;
  }

  private static long aligned(long size) {
    return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }

  void addColumn(int values, int nulls) {
    if (nodeCount + 2 > nodes.length) {
      nodes = java.util.Arrays.copyOf(nodes, nodes.length * 2);
    }
    nodes[nodeCount++] = values;
    nodes[nodeCount++] = nulls;
  }

  void addBuffer(byte[] bytes, int size) {
    if (bufferCount == sizes.length) {
      sizes = java.util.Arrays.copyOf(sizes, sizes.length * 2);
      byte[][] larger = new byte[buffers.length * 2][];
      System.arraycopy(buffers, 0, larger, 0, buffers.length);
      buffers = larger;
    }
    buffers[bufferCount] = bytes;
    sizes[bufferCount++] = size;
  }
}
