package org.lancespark;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.arrow.flatbuf.DictionaryBatch;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.flatbuf.Schema;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.Platform;

/**
 * Reads batches, each of which is an Arrow stream of its own.
 *
 * <pre>
 *   message   -1 as int32, size of metadata as int32, metadata, body
 *   stream    schema, dictionaries, one record batch, and the end: a message of size 0
 * </pre>
 */
final class ArrowStreams {
  private static final int PREFIX = 8;

  /** Memory for streams is made for twice the bytes, up to this number. */
  private static final int LARGE = 1 << 20;

  /** Memory of more bytes is not kept for the next stream. */
  private static final int LARGEST_KEPT = 8 << 20;

  private final StructType output;
  private byte[] schemaBytes = new byte[0];
  private ArrowColumn[] columns;
  private Dictionaries dictionaries;
  private ColumnarBatch batch;

  /** Memory for streams that are arrays of the JVM. */
  private ByteBuffer copied;

  ArrowStreams(StructType output) {
    this.output = output;
  }

  /** Returns the batch of a stream. It is valid until the next one is read. */
  ColumnarBatch read(byte[] bytes, int start, int length) {
    if (copied == null || copied.capacity() < length) {
      copied = ByteBuffer.allocateDirect(Math.max(length, Math.min(2 * length, LARGE)));
    }
    ByteBuffer memory = copied;
    long address = MemoryUtil.getByteBufferAddress(memory);
    Platform.copyMemory(
        bytes, Platform.BYTE_ARRAY_OFFSET + (long) start, null, address, (long) length);
    if (memory.capacity() > LARGEST_KEPT) {
      copied = null;
    }
    return read(memory, address, length);
  }

  /**
   * Returns the batch of the stream at an address. It is valid until the memory changes.
   *
   * @param owner keeps the memory mapped
   */
  ColumnarBatch read(Object owner, long start, int length) {
    long end = start + length;
    long at = start;
    boolean hasBatch = false;
    while (end - at >= PREFIX) {
      int marker = Platform.getInt(null, at);
      int size = Platform.getInt(null, at + 4L);
      at += PREFIX;
      if (marker != -1 || size < 0 || size > end - at) {
        throw Body.malformed("a message has a size of " + size + " bytes");
      }
      if (size == 0) {
        break;
      }
      byte[] metadata = new byte[size];
      Platform.copyMemory(null, at, metadata, Platform.BYTE_ARRAY_OFFSET, (long) size);
      Message message =
          Message.getRootAsMessage(ByteBuffer.wrap(metadata).order(ByteOrder.LITTLE_ENDIAN));
      at += size;
      long body = message.bodyLength();
      if (body < 0 || body > end - at) {
        throw Body.malformed("a message has a body of " + body + " bytes");
      }
      switch (message.headerType()) {
        case MessageHeader.Schema:
          useSchema(message, metadata);
          break;
        case MessageHeader.DictionaryBatch:
          DictionaryBatch values = (DictionaryBatch) message.header(new DictionaryBatch());
          if (dictionaries == null || values.isDelta()) {
            throw Body.malformed("a dictionary is not whole");
          }
          dictionaries.load(values.id(), new Body(values.data(), owner, at, body));
          break;
        case MessageHeader.RecordBatch:
          RecordBatch rows = (RecordBatch) message.header(new RecordBatch());
          load(rows, new Body(rows, owner, at, body));
          hasBatch = true;
          break;
        default:
          throw Body.malformed("a message has the type " + message.headerType());
      }
      at += body;
    }
    if (!hasBatch) {
      throw Body.malformed("it has no rows");
    }
    return batch;
  }

  /** Drops memory, which the columns of the last batch keep as long as something refers to them. */
  void close() {
    copied = null;
  }

  private void useSchema(Message message, byte[] metadata) {
    if (columns != null && Arrays.equals(metadata, schemaBytes)) {
      return;
    }
    Schema schema = (Schema) message.header(new Schema());
    StructField[] fields = output.fields();
    if (schema.fieldsLength() != fields.length) {
      throw Body.malformed(
          "it has " + schema.fieldsLength() + " columns, expected " + fields.length);
    }
    columns = new ArrowColumn[fields.length];
    dictionaries = new Dictionaries();
    for (int i = 0; i < columns.length; i++) {
      columns[i] = Layout.column(schema.fields(i), fields[i].dataType());
      dictionaries.describe(schema.fields(i));
    }
    schemaBytes = metadata;
    batch = new ColumnarBatch(columns);
  }

  private void load(RecordBatch rows, Body body) {
    if (columns == null || rows.length() < 0 || rows.length() > Integer.MAX_VALUE) {
      throw Body.malformed("a batch has " + rows.length() + " rows");
    }
    for (int i = 0; i < columns.length; i++) {
      columns[i].load(body, dictionaries);
      if (columns[i].rows() != rows.length()) {
        throw Body.malformed(
            "a column has " + columns[i].rows() + " rows, the batch " + rows.length());
      }
    }
    batch.setNumRows((int) rows.length());
  }
}
