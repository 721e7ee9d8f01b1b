package org.lancespark;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.Iterator;

/**
 * Makes the form of an IN with a hundred thousand keys, which as expressions of Spark would take
 * longer than the search for them. The keys are bytes in Base64, little-endian: integers of 64 bits,
 * or the lengths of strings, of 32 bits each, and then their bytes.
 */
final class KeyForms {
  /** Most bytes of the keys of a column. */
  private static final int MAX_BYTES = 8 * 1024 * 1024;

  private KeyForms() {}

  /**
   * Returns the form; null if keys of this type have none, or they are too long.
   *
   * @param own a column, or a cast of one to the type of the keys
   * @param values the values of the key as the only column; null if they are not known
   */
  static Map of(Expression own, Expression key, LocalRelation values) {
    Expression column = own instanceof Cast ? (Expression) own.children().apply(0) : own;
    if (values == null || !(column instanceof AttributeReference)) {
      return null;
    }
    DataType type = column.dataType();
    boolean isText = type.equals(DataTypes.StringType);
    byte[] bytes = null;
    if (isText && own == column && key.dataType().equals(type)) {
      bytes = ofStrings(values);
    } else if (bits(type) > 0 && bits(own.dataType()) >= bits(type)) {
      bytes = ofIntegers(values, key.dataType(), bits(type));
    }
    if (bytes == null) {
      return null;
    }
    Map packed = new LinkedHashMap();
    packed.put("packed", Base64.getEncoder().encodeToString(bytes));
    packed.put("type", type.catalogString());
    int count = isText ? numValues(values) : bytes.length / Long.BYTES;
    packed.put("count", Integer.valueOf(count));
    // The form of a null test has the column.
    Map form = (Map) Expressions.write(new IsNotNull(column));
    Object place = ((List) form.get("args")).get(0);
    return Forms.operation("in", new Object[] {place, packed});
  }

  private static int bits(DataType type) {
    if (type.equals(DataTypes.LongType)) return Long.SIZE;
    if (type.equals(DataTypes.IntegerType)) return Integer.SIZE;
    if (type.equals(DataTypes.ShortType)) return Short.SIZE;
    if (type.equals(DataTypes.ByteType)) return Byte.SIZE;
    return 0;
  }

  private static int numValues(LocalRelation values) {
    int count = 0;
    for (Iterator i = values.data().iterator(); i.hasNext(); ) {
      count += ((InternalRow) i.next()).isNullAt(0) ? 0 : 1;
    }
    return count;
  }

  /** Packs the integers that a column of so many bits can have. */
  private static byte[] ofIntegers(LocalRelation values, DataType type, int bits) {
    if ((long) values.data().size() * Long.BYTES > MAX_BYTES) {
      return null;
    }
    ByteBuffer buffer =
        ByteBuffer.allocate(values.data().size() * Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    int unused = Long.SIZE - bits;
    for (Iterator i = values.data().iterator(); i.hasNext(); ) {
      InternalRow row = (InternalRow) i.next();
      if (row.isNullAt(0)) {
        continue;
      }
      long key = ((Number) row.get(0, type)).longValue();
      if (key << unused >> unused == key) {
        buffer.putLong(key);
      }
    }
    return Arrays.copyOf(buffer.array(), buffer.position());
  }

  /** Packs strings, unless the bytes of one are not UTF-8. */
  private static byte[] ofStrings(LocalRelation values) {
    ByteBuffer lengths =
        ByteBuffer.allocate(numValues(values) * Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    ByteArrayOutputStream texts = new ByteArrayOutputStream();
    for (Iterator i = values.data().iterator(); i.hasNext(); ) {
      InternalRow row = (InternalRow) i.next();
      if (row.isNullAt(0)) {
        continue;
      }
      UTF8String key = row.getUTF8String(0);
      byte[] bytes = key.getBytes();
      boolean isText = UTF8String.fromString(key.toString()).equals(key);
      if (!isText || texts.size() + bytes.length > MAX_BYTES) {
        return null;
      }
      lengths.putInt(bytes.length);
      texts.write(bytes, 0, bytes.length);
    }
    byte[] first = lengths.array();
    byte[] packed = Arrays.copyOf(first, first.length + texts.size());
    System.arraycopy(texts.toByteArray(), 0, packed, first.length, texts.size());
    return packed;
  }
}
