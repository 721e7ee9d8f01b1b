package org.lancespark;

import org.apache.arrow.flatbuf.Buffer;
import org.apache.arrow.flatbuf.FieldNode;
import org.apache.arrow.flatbuf.RecordBatch;

/** The buffers of a record batch, which columns take in the order of the schema. */
final class Body {
  /** What keeps the memory mapped. */
  final Object owner;

  private final RecordBatch batch;
  private final long start;
  private final long length;
  private final FieldNode node = new FieldNode();
  private final Buffer buffer = new Buffer();
  private int nodes = 0;
  private int buffers = 0;

  /** Takes the memory from the address `start` on, which must hold `length` bytes. */
  Body(RecordBatch batch, Object owner, long start, long length) {
    this.batch = batch;
    this.owner = owner;
    this.start = start;
    this.length = length;
    if (batch.compression() != null) {
      throw malformed("a batch is compressed");
    }
  }

  /** Begins the next column. Returns its number of values. */
  int nextRows() {
    if (nodes >= batch.nodesLength()) {
      throw malformed("a batch has fewer columns than its schema");
    }
    batch.nodes(node, nodes++);
    if (node.length() < 0 || node.length() > Integer.MAX_VALUE) {
      throw malformed("a column has " + node.length() + " values");
    }
    if (node.nullCount() < 0 || node.nullCount() > node.length()) {
      throw malformed("a column has " + node.nullCount() + " nulls");
    }
    return (int) node.length();
  }

  /** Returns the number of nulls of the column that was begun last. */
  int nulls() {
    return (int) node.nullCount();
  }

  /** Returns the address of the next buffer, which must have a bit for each value. */
  long nextBits(int values) {
    return nextBuffer((values + 7L) / 8L);
  }

  /** Returns the address of the next buffer, which must have so many bytes. */
  long nextBuffer(long needed) {
    if (buffers >= batch.buffersLength()) {
      throw malformed("a batch has fewer buffers than its schema");
    }
    batch.buffers(buffer, buffers++);
    long offset = buffer.offset();
    long size = buffer.length();
    if (offset < 0 || size < needed || size > length || offset > length - size) {
      throw malformed(
          "a buffer of " + size + " bytes at " + offset + ", " + needed + " are needed, of " + length);
    }
    return start + offset;
  }

  static IllegalStateException malformed(String problem) {
    return new IllegalStateException(
        "a batch that a Python worker sent cannot be read: "
            + problem
            + "; set "
            + ColumnarFactory.ENABLED
            + " to false, and check that the driver and the workers have the same release of"
            + " lance-spark");
  }
}
