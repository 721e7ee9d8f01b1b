package org.lancespark;

import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column of an Arrow record batch, whose values are read where they lie in memory.
 *
 * <p>One class for all types: generated code calls its methods without a choice between classes.
 * The bounds of all buffers, offsets and indices are checked when a batch is loaded. As with
 * Spark's own columns, values are valid until the next batch is loaded.
 */
final class ArrowColumn extends ColumnVector {
  private final Layout layout;
  private final ArrowColumn[] children;
  private final long listSize;
  private final boolean hasLongOffsets;

  /** What keeps the memory mapped as long as something refers to the column. */
  private Object owner;

  private int rows;
  private int nulls;
  private long validity;
  private long offsets;
  private long data;

  /** Values of the dictionary; null if the column has none. */
  private UTF8String[] strings;

  ArrowColumn(DataType type, Layout layout, ArrowColumn[] children) {
    super(type);
    this.layout = layout;
    this.children = children;
    this.listSize = layout.listSize;
    this.hasLongOffsets = layout.kind == Layout.LONG_BYTES || layout.kind == Layout.LONG_LIST;
  }

  /** Takes the buffers of this column, and of its children, from a record batch. */
  void load(Body body, Dictionaries dictionaries) {
    rows = body.nextRows();
    nulls = body.nulls();
    owner = body.owner;
    if (layout.kind == Layout.NULL) {
      nulls = rows;
      return;
    }
    validity = body.nextBits(nulls == 0 ? 0 : rows);
    switch (layout.kind) {
      case Layout.BITS:
        data = body.nextBits(rows);
        break;
      case Layout.FIXED:
        data = body.nextBuffer((long) rows * layout.width);
        break;
      case Layout.INDICES:
        data = body.nextBuffer((long) rows * layout.width);
        strings = dictionaries.strings(layout.dictionary);
        checkIndices();
        break;
      case Layout.BYTES:
      case Layout.LONG_BYTES:
        loadOffsets(body);
        data = body.nextBuffer(last());
        break;
      case Layout.LIST:
      case Layout.LONG_LIST:
        loadOffsets(body);
        loadChildren(body, dictionaries, last());
        break;
      case Layout.FIXED_LIST:
        loadChildren(body, dictionaries, rows * listSize);
        break;
      default:
        loadChildren(body, dictionaries, rows);
    }
  }

  private void loadChildren(Body body, Dictionaries dictionaries, long needed) {
    for (int i = 0; i < children.length; i++) {
      children[i].load(body, dictionaries);
      if (children[i].rows < needed) {
        throw Body.malformed("a child column has " + children[i].rows + " values of " + needed);
      }
    }
  }

  private void loadOffsets(Body body) {
    // Arrow may leave the offsets of a column without rows out.
    offsets = rows == 0 ? 0L : body.nextBuffer((rows + 1L) * (hasLongOffsets ? 8 : 4));
    if (rows == 0) {
      body.nextBuffer(0);
      return;
    }
    long previous = offset(0);
    boolean isSorted = previous >= 0;
    for (int i = 1; i <= rows; i++) {
      long next = offset(i);
      isSorted &= next >= previous;
      previous = next;
    }
    if (!isSorted) {
      throw Body.malformed("offsets are not in order");
    }
  }

  private void checkIndices() {
    boolean isInside = true;
    for (int i = 0; i < rows; i++) {
      int index = index(i);
      isInside &=
          (index >= 0 && index < strings.length && strings[index] != null) || isNullAt(i);
    }
    if (!isInside) {
      throw Body.malformed("an index is outside its dictionary");
    }
  }

  /** Returns the values as strings, which do not change when the next batch is loaded. */
  UTF8String[] copyStrings() {
    UTF8String[] copies = new UTF8String[rows];
    for (int i = 0; i < rows; i++) {
      copies[i] = isNullAt(i) ? null : getUTF8String(i).copy();
    }
    return copies;
  }

  int rows() {
    return rows;
  }

  private long last() {
    return rows == 0 ? 0L : offset(rows);
  }

  private long offset(int i) {
    return hasLongOffsets
        ? Platform.getLong(null, offsets + ((long) i << 3))
        : Platform.getInt(null, offsets + ((long) i << 2));
  }

  private int index(int i) {
    switch (layout.width) {
      case 1:
        return Platform.getByte(null, data + i);
      case 2:
        return Platform.getShort(null, data + ((long) i << 1));
      default:
        return Platform.getInt(null, data + ((long) i << 2));
    }
  }

  public void close() {}

  public boolean hasNull() {
    return nulls > 0;
  }

  public int numNulls() {
    return nulls;
  }

  public boolean isNullAt(int i) {
    if (nulls == 0) {
      return false;
    }
    return nulls == rows || (Platform.getByte(null, validity + (i >> 3)) >> (i & 7) & 1) == 0;
  }

  public boolean getBoolean(int i) {
    return (Platform.getByte(null, data + (i >> 3)) >> (i & 7) & 1) != 0;
  }

  public byte getByte(int i) {
    return Platform.getByte(null, data + i);
  }

  public short getShort(int i) {
    return Platform.getShort(null, data + ((long) i << 1));
  }

  public int getInt(int i) {
    return Platform.getInt(null, data + ((long) i << 2));
  }

  public long getLong(int i) {
    return Platform.getLong(null, data + ((long) i << 3));
  }

  public float getFloat(int i) {
    return Platform.getFloat(null, data + ((long) i << 2));
  }

  public double getDouble(int i) {
    return Platform.getDouble(null, data + ((long) i << 3));
  }

  public UTF8String getUTF8String(int i) {
    if (isNullAt(i)) {
      return null;
    }
    if (strings != null) {
      return strings[index(i)];
    }
    long start = offset(i);
    return UTF8String.fromAddress(null, data + start, (int) (offset(i + 1) - start));
  }

  public byte[] getBinary(int i) {
    if (isNullAt(i)) {
      return null;
    }
    if (strings != null) {
      return strings[index(i)].getBytes();
    }
    long start = offset(i);
    byte[] value = new byte[(int) (offset(i + 1) - start)];
    Platform.copyMemory(
        null, data + start, value, Platform.BYTE_ARRAY_OFFSET, (long) value.length);
    return value;
  }

  public Decimal getDecimal(int i, int precision, int scale) {
    if (isNullAt(i)) {
      return null;
    }
    long low = Platform.getLong(null, data + (long) i * layout.width);
    if (precision <= Layout.MAX_LONG_DIGITS) {
      return Decimal.createUnsafe(low, precision, scale);
    }
    long high = Platform.getLong(null, data + ((long) i << 4) + 8L);
    byte[] digits = new byte[16];
    for (int b = 0; b < 8; b++) {
      digits[b] = (byte) (high >> (56 - 8 * b));
      digits[b + 8] = (byte) (low >> (56 - 8 * b));
    }
    return Decimal.apply(new BigDecimal(new BigInteger(digits), scale), precision, scale);
  }

  public ColumnarArray getArray(int i) {
    if (isNullAt(i)) {
      return null;
    }
    long start = listSize >= 0 ? i * listSize : offset(i);
    long length = listSize >= 0 ? listSize : offset(i + 1) - start;
    return new ColumnarArray(children[0], (int) start, (int) length);
  }

  public ColumnarMap getMap(int i) {
    if (isNullAt(i)) {
      return null;
    }
    long start = offset(i);
    ArrowColumn entries = children[0];
    int length = (int) (offset(i + 1) - start);
    return new ColumnarMap(entries.children[0], entries.children[1], (int) start, length);
  }

  public ColumnVector getChild(int i) {
    return children[i];
  }
}
