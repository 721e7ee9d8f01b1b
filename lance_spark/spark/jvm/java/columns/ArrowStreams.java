package org.lancespark;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.arrow.flatbuf.DictionaryBatch;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.flatbuf.Schema;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;

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

  private final StructType output;
  private byte[] schemaBytes = new byte[0];
  private ArrowColumn[] columns;
  private Dictionaries dictionaries;
  private ColumnarBatch batch;

  ArrowStreams(StructType output) {
    this.output = output;
  }

  /** Returns the batch of a stream. It is valid until the bytes change. */
  ColumnarBatch read(byte[] bytes, int start, int length) {
    int end = start + length;
    int at = start;
    boolean hasBatch = false;
    while (end - at >= PREFIX) {
      ByteBuffer prefix = ByteBuffer.wrap(bytes, at, PREFIX).order(ByteOrder.LITTLE_ENDIAN);
      int marker = prefix.getInt();
      int size = prefix.getInt();
      at += PREFIX;
      if (marker != -1 || size < 0 || size > end - at) {
        throw Body.malformed("a message has a size of " + size + " bytes");
      }
      if (size == 0) {
        break;
      }
      ByteBuffer metadata = (ByteBuffer) ByteBuffer.wrap(bytes, at, size).slice();
      Message message = Message.getRootAsMessage(metadata.order(ByteOrder.LITTLE_ENDIAN));
      long body = message.bodyLength();
      if (body < 0 || body > end - at - size) {
        throw Body.malformed("a message has a body of " + body + " bytes");
      }
      int bodyStart = at + size;
      switch (message.headerType()) {
        case MessageHeader.Schema:
          useSchema(message, bytes, at, size);
          break;
        case MessageHeader.DictionaryBatch:
          DictionaryBatch values = (DictionaryBatch) message.header(new DictionaryBatch());
          if (dictionaries == null || values.isDelta()) {
            throw Body.malformed("a dictionary is not whole");
          }
          dictionaries.load(values.id(), new Body(values.data(), bytes, bodyStart, body));
          break;
        case MessageHeader.RecordBatch:
          RecordBatch rows = (RecordBatch) message.header(new RecordBatch());
          load(rows, new Body(rows, bytes, bodyStart, body));
          hasBatch = true;
          break;
        default:
          throw Body.malformed("a message has the type " + message.headerType());
      }
      at = bodyStart + (int) body;
    }
    if (!hasBatch) {
      throw Body.malformed("it has no rows");
    }
    return batch;
  }

  private void useSchema(Message message, byte[] bytes, int at, int size) {
    boolean isSame =
        columns != null
            && schemaBytes.length == size
            && ByteArrayMethods.arrayEquals(
                bytes,
                Platform.BYTE_ARRAY_OFFSET + (long) at,
                schemaBytes,
                Platform.BYTE_ARRAY_OFFSET,
                size);
    if (isSame) {
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
    schemaBytes = new byte[size];
    System.arraycopy(bytes, at, schemaBytes, 0, size);
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
