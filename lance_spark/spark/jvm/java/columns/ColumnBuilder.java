package org.lancespark;

import java.math.BigInteger;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.expressions.UnsafeArrayData;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.NullType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.types.UserDefinedType;
import org.apache.spark.sql.types.VariantType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.unsafe.types.VariantVal;

/** Collects the values of a column in the buffers of an Arrow array. */
final class ColumnBuilder {
  private static final int NULL = 0;
  private static final int BITS = 1;
  private static final int BYTE = 2;
  private static final int SHORT = 3;
  private static final int INT = 4;
  private static final int LONG = 5;
  private static final int FLOAT = 6;
  private static final int DOUBLE = 7;
  private static final int DECIMAL = 8;
  private static final int STRING = 9;
  private static final int BINARY = 10;
  private static final int LIST = 11;
  private static final int MAP = 12;
  private static final int STRUCT = 13;
  private static final int VARIANT = 14;

  private static final long START = Platform.BYTE_ARRAY_OFFSET;
  private static final int FIRST_SIZE = 256;

  private final DataType type;
  private final int kind;
  private final ColumnBuilder[] children;

  /** Bytes of a value; 0 if values are bits, or have no fixed width. */
  private final int width;

  private final boolean hasOffsets;

  /** Bytes of an item that are copied together with others; 0 if each is converted. */
  private final int itemWidth;

  private int rows = 0;
  private int nulls = 0;
  private byte[] validity = new byte[FIRST_SIZE];
  private byte[] offsets = new byte[FIRST_SIZE];
  private byte[] data = new byte[FIRST_SIZE];
  private int used = 0;

  private ColumnBuilder(DataType type, int kind, ColumnBuilder[] children) {
    this.type = type;
    this.kind = kind;
    this.children = children;
    this.width = widthOf(kind);
    this.hasOffsets = kind >= STRING && kind <= MAP;
    // Spark's arrays hold decimals in another form.
    this.itemWidth = kind == LIST && children[0].kind != DECIMAL ? children[0].width : 0;
  }

  /** Returns the builder of a type, or null if a type of its columns has none. */
  static ColumnBuilder of(DataType type) {
    if (type instanceof UserDefinedType) {
      return of(((UserDefinedType) type).sqlType());
    }
    DataType[] types = new DataType[0];
    int kind = kindOf(type);
    if (kind < 0) {
      return null;
    }
    if (type instanceof ArrayType) {
      types = new DataType[] {((ArrayType) type).elementType()};
    } else if (type instanceof MapType) {
      DataType key = ((MapType) type).keyType();
      // Arrow has no maps whose keys are null. `map()`, which has such a type, has no keys.
      key = key instanceof NullType ? DataTypes.StringType : key;
      types = new DataType[] {key, ((MapType) type).valueType()};
    } else if (type instanceof StructType) {
      StructField[] fields = ((StructType) type).fields();
      types = new DataType[fields.length];
      for (int i = 0; i < types.length; i++) {
        types[i] = fields[i].dataType();
      }
    } else if (type instanceof VariantType) {
      // Value and metadata, as in Spark's own Arrow batches.
      types = new DataType[] {DataTypes.BinaryType, DataTypes.BinaryType};
    }
    ColumnBuilder[] children = new ColumnBuilder[types.length];
    for (int i = 0; i < children.length; i++) {
      children[i] = of(types[i]);
      if (children[i] == null) {
        return null;
      }
    }
    return new ColumnBuilder(type, kind, children);
  }

  private static int kindOf(DataType type) {
    if (type instanceof NullType) return NULL;
    if (type instanceof BooleanType) return BITS;
    if (type instanceof DecimalType) return DECIMAL;
    if (type instanceof StringType) return STRING;
    if (type instanceof BinaryType) return BINARY;
    if (type instanceof ArrayType) return LIST;
    if (type instanceof MapType) return MAP;
    if (type instanceof StructType) return STRUCT;
    if (type instanceof VariantType) return VARIANT;
    if (type instanceof ByteType) return BYTE;
    if (type instanceof ShortType) return SHORT;
    if (type instanceof IntegerType || type instanceof DateType) return INT;
    if (type instanceof FloatType) return FLOAT;
    if (type instanceof DoubleType) return DOUBLE;
    boolean isLong =
        type instanceof LongType
            || type instanceof TimestampType
            || type instanceof TimestampNTZType
            || type instanceof DayTimeIntervalType
            // Spark 4.0 lacks it.
            || SparkClasses.TIME_TYPE.equals(SparkClasses.of(type));
    return isLong ? LONG : -1;
  }

  private static int widthOf(int kind) {
    switch (kind) {
      case BYTE:
        return 1;
      case SHORT:
        return 2;
      case INT:
      case FLOAT:
        return 4;
      case LONG:
      case DOUBLE:
        return 8;
      case DECIMAL:
        return 16;
      default:
        return 0;
    }
  }

  /** Adds a value of a row, an array or a struct. */
  void add(SpecializedGetters values, int index) {
    if (kind == NULL || values.isNullAt(index)) {
      addNull();
      return;
    }
    validity = withRoom(validity, (rows >> 3) + 1);
    validity[rows >> 3] |= (byte) (1 << (rows & 7));
    data = withRoom(data, (long) used + width);
    long place = START + used;
    switch (kind) {
      case BITS:
        data = withRoom(data, (rows >> 3) + 1);
        if (values.getBoolean(index)) {
          data[rows >> 3] |= (byte) (1 << (rows & 7));
        }
        break;
      case BYTE:
        Platform.putByte(data, place, values.getByte(index));
        break;
      case SHORT:
        Platform.putShort(data, place, values.getShort(index));
        break;
      case INT:
        Platform.putInt(data, place, values.getInt(index));
        break;
      case LONG:
        Platform.putLong(data, place, values.getLong(index));
        break;
      case FLOAT:
        Platform.putFloat(data, place, values.getFloat(index));
        break;
      case DOUBLE:
        Platform.putDouble(data, place, values.getDouble(index));
        break;
      case DECIMAL:
        putDecimal(place, values, index);
        break;
      case STRING:
        addString(values.getUTF8String(index));
        break;
      case BINARY:
        addBytes(values.getBinary(index));
        break;
      case LIST:
        addItems(values.getArray(index));
        break;
      case MAP:
        addEntries(values.getMap(index));
        break;
      case VARIANT:
        VariantVal variant = values.getVariant(index);
        children[0].addPresent(variant.getValue());
        children[1].addPresent(variant.getMetadata());
        break;
      default:
        InternalRow struct = values.getStruct(index, children.length);
        for (int i = 0; i < children.length; i++) {
          children[i].add(struct, i);
        }
    }
    endValue();
  }

  private void addNull() {
    validity = withRoom(validity, (rows >> 3) + 1);
    nulls++;
    switch (kind) {
      case BITS:
        data = withRoom(data, (rows >> 3) + 1);
        break;
      case STRUCT:
      case VARIANT:
        for (int i = 0; i < children.length; i++) {
          children[i].addNull();
        }
        break;
      default:
        data = withRoom(data, (long) used + width);
    }
    endValue();
  }

  private void endValue() {
    used += width;
    rows++;
    if (hasOffsets) {
      offsets = withRoom(offsets, (rows + 1L) * 4);
      Platform.putInt(offsets, START + ((long) rows << 2), used);
    }
  }

  private void putDecimal(long place, SpecializedGetters values, int index) {
    DecimalType decimal = (DecimalType) type;
    Decimal value = values.getDecimal(index, decimal.precision(), decimal.scale());
    if (value == null) {
      throw new IllegalStateException("a decimal does not fit " + decimal.catalogString());
    }
    long low;
    long high;
    if (decimal.precision() <= Decimal.MAX_LONG_DIGITS()) {
      low = value.toUnscaledLong();
      high = low >> 63;
    } else {
      BigInteger digits = value.toJavaBigDecimal().unscaledValue();
      low = digits.longValue();
      high = digits.shiftRight(64).longValue();
    }
    Platform.putLong(data, place, low);
    Platform.putLong(data, place + 8, high);
  }

  private void addString(UTF8String value) {
    int size = value.numBytes();
    data = withRoom(data, (long) used + size);
    value.writeToMemory(data, START + used);
    used += size;
  }

  private void addBytes(byte[] value) {
    data = withRoom(data, (long) used + value.length);
    System.arraycopy(value, 0, data, used, value.length);
    used += value.length;
  }

  /** Adds a value of a column of type binary. */
  private void addPresent(byte[] value) {
    setValid(rows, 1);
    addBytes(value);
    endValue();
  }

  private void addItems(ArrayData items) {
    int count = items.numElements();
    used += count;
    ColumnBuilder child = children[0];
    if (itemWidth > 0 && items instanceof UnsafeArrayData && !hasNulls((UnsafeArrayData) items)) {
      child.copyItems((UnsafeArrayData) items, count, itemWidth);
      return;
    }
    for (int i = 0; i < count; i++) {
      child.add(items, i);
    }
  }

  private static boolean hasNulls(UnsafeArrayData items) {
    // The words of the bit set follow after the number of items.
    long start = items.getBaseOffset() + 8;
    long end = items.getBaseOffset() + UnsafeArrayData.calculateHeaderPortionInBytes(items.numElements());
    for (long at = start; at < end; at += 8) {
      if (Platform.getLong(items.getBaseObject(), at) != 0L) {
        return true;
      }
    }
    return false;
  }

  private void copyItems(UnsafeArrayData items, int count, int width) {
    setValid(rows, count);
    int size = Math.multiplyExact(count, width);
    data = withRoom(data, (long) used + size);
    long from =
        items.getBaseOffset() + UnsafeArrayData.calculateHeaderPortionInBytes(items.numElements());
    Platform.copyMemory(items.getBaseObject(), from, data, START + used, (long) size);
    used += size;
    rows += count;
  }

  private void addEntries(MapData map) {
    int count = map.numElements();
    used += count;
    ArrayData keys = map.keyArray();
    ArrayData values = map.valueArray();
    for (int i = 0; i < count; i++) {
      children[0].add(keys, i);
      children[1].add(values, i);
    }
  }

  private void setValid(int from, int count) {
    validity = withRoom(validity, ((from + (long) count) >> 3) + 1);
    int i = from;
    int end = from + count;
    while (i < end && (i & 7) != 0) {
      validity[i >> 3] |= (byte) (1 << (i & 7));
      i++;
    }
    if (end - i >= 8) {
      Arrays.fill(validity, i >> 3, end >> 3, (byte) -1);
      i = end & ~7;
    }
    while (i < end) {
      validity[i >> 3] |= (byte) (1 << (i & 7));
      i++;
    }
  }

  private static byte[] withRoom(byte[] bytes, long size) {
    if (size <= bytes.length) {
      return bytes;
    }
    if (size > BatchBuilder.MAX_BYTES) {
      throw new IllegalStateException(
          "a batch has more than 2 GiB of one column: set " + ColumnarFactory.ENABLED + " to false");
    }
    return Arrays.copyOf(bytes, (int) Math.min(Math.max(size, bytes.length * 2L), BatchBuilder.MAX_BYTES));
  }

  /** Returns the number of bytes that the values take. */
  long size() {
    long size = used + rows * 5L;
    for (int i = 0; i < children.length; i++) {
      size += children[i].size();
    }
    return size;
  }

  /** Hands over the buffers, depth first. They must be copied before `clear`. */
  void finish(BatchBuilder batch) {
    batch.addColumn(rows, nulls);
    int bitmap = (rows + 7) / 8;
    if (kind != NULL) {
      batch.addBuffer(validity, nulls == 0 ? 0 : bitmap);
      if (hasOffsets) {
        Platform.putInt(offsets, START, 0);
        batch.addBuffer(offsets, (rows + 1) * 4);
      }
      if (kind == BITS) {
        batch.addBuffer(data, bitmap);
      } else if (kind < LIST) {
        batch.addBuffer(data, used);
      }
    }
    for (int i = 0; i < children.length; i++) {
      children[i].finish(batch);
    }
  }

  /** Begins the next batch. */
  void clear() {
    int bitmap = (rows + 7) / 8;
    Arrays.fill(validity, 0, bitmap, (byte) 0);
    for (int i = 0; i < children.length; i++) {
      children[i].clear();
    }
    if (kind == BITS) {
      Arrays.fill(data, 0, bitmap, (byte) 0);
    }
    rows = 0;
    nulls = 0;
    used = 0;
  }
}
