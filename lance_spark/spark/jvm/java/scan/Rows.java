package org.lancespark;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils$;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads rows that Python has sent, as Spark reads the batches of a Python task. */
final class Rows {
  private Rows() {}

  /** Returns the rows of an Arrow stream, or null if it does not have the columns of the schema. */
  static InternalRow[] of(byte[] bytes, int start, int length, StructType schema) {
    try {
      return read(new ByteArrayInputStream(bytes, start, length), schema);
    } catch (Exception e) {
      Log.leftToSpark("rows", e);
    } catch (LinkageError e) {
      Log.leftToSpark("rows", e);
    }
    return null;
  }

  private static InternalRow[] read(ByteArrayInputStream stream, StructType schema)
      throws IOException {
    List rows = new ArrayList();
    UnsafeProjection copier = UnsafeProjection.create(schema);
    BufferAllocator allocator =
        ArrowUtils$.MODULE$.rootAllocator().newChildAllocator("lance-rows", 0L, Long.MAX_VALUE);
    try {
      ArrowStreamReader reader = new ArrowStreamReader(stream, allocator);
      try {
        VectorSchemaRoot root = reader.getVectorSchemaRoot();
        ColumnVector[] columns = new ColumnVector[schema.length()];
        if (root.getFieldVectors().size() != columns.length) {
          throw new IOException(
              root.getFieldVectors().size() + " columns, expected " + columns.length);
        }
        for (int i = 0; i < columns.length; i++) {
          columns[i] = new ArrowColumnVector(root.getVector(i));
        }
        ColumnarBatch batch = new ColumnarBatch(columns);
        while (reader.loadNextBatch()) {
          batch.setNumRows(root.getRowCount());
          for (int i = 0; i < root.getRowCount(); i++) {
            rows.add(copier.apply(batch.getRow(i)).copy());
          }
        }
      } finally {
        reader.close();
      }
    } finally {
      allocator.close();
    }
    return (InternalRow[]) rows.toArray(new InternalRow[rows.size()]);
  }
}
