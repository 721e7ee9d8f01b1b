package org.lancespark;

import org.apache.arrow.flatbuf.Date;
import org.apache.arrow.flatbuf.DateUnit;
import org.apache.arrow.flatbuf.Decimal;
import org.apache.arrow.flatbuf.DictionaryEncoding;
import org.apache.arrow.flatbuf.Field;
import org.apache.arrow.flatbuf.FixedSizeList;
import org.apache.arrow.flatbuf.FloatingPoint;
import org.apache.arrow.flatbuf.Int;
import org.apache.arrow.flatbuf.Precision;
import org.apache.arrow.flatbuf.Time;
import org.apache.arrow.flatbuf.Type;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.VariantType;

/** How the buffers of an Arrow column hold the values of a type of Spark. */
final class Layout {
  static final int NULL = 0;
  static final int BITS = 1;
  static final int FIXED = 2;
  static final int INDICES = 3;
  static final int BYTES = 4;
  static final int LONG_BYTES = 5;
  static final int LIST = 6;
  static final int LONG_LIST = 7;
  static final int FIXED_LIST = 8;
  static final int STRUCT = 9;

  /** Bytes of a decimal of Arrow. */
  private static final int DECIMAL_WIDTH = 16;

  /** Digits of the decimals that 64 bits hold. */
  static final int MAX_LONG_DIGITS = org.apache.spark.sql.types.Decimal.MAX_LONG_DIGITS();

  final int kind;

  /** Bytes of a value or an index. */
  final int width;

  /** Number of values of each list, or -1. */
  final int listSize;

  /** Id of the dictionary of indices. */
  final long dictionary;

  private Layout(int kind, int width, int listSize, long dictionary) {
    this.kind = kind;
    this.width = width;
    this.listSize = listSize;
    this.dictionary = dictionary;
  }

  /** Returns the column of a field, and the columns of its children. */
  static ArrowColumn column(Field field, DataType type) {
    DictionaryEncoding encoding = field.dictionary();
    if (encoding != null) {
      check(isBytes(type) && isBytes(field), field, type);
      int width = encoding.indexType().bitWidth() / 8;
      check(width <= 4 && encoding.indexType().isSigned(), field, type);
      return new ArrowColumn(
          type, new Layout(INDICES, width, -1, encoding.id()), new ArrowColumn[0]);
    }
    Layout layout = of(field);
    check(layout.holds(type), field, type);
    DataType[] types = childTypes(type);
    if (layout.kind == NULL) {
      types = new DataType[0];
    }
    check(field.childrenLength() == types.length, field, type);
    ArrowColumn[] children = new ArrowColumn[types.length];
    for (int i = 0; i < children.length; i++) {
      children[i] = column(field.children(i), types[i]);
    }
    return new ArrowColumn(type, layout, children);
  }

  /** Returns the column of the values of a dictionary. */
  static ArrowColumn values(Field field, DataType type) {
    return new ArrowColumn(type, of(field), new ArrowColumn[0]);
  }

  private static Layout of(Field field) {
    switch (field.typeType()) {
      case Type.Null:
        return plain(NULL);
      case Type.Bool:
        return plain(BITS);
      case Type.Int:
        return fixed(((Int) field.type(new Int())).bitWidth() / 8);
      case Type.FloatingPoint:
        short precision = ((FloatingPoint) field.type(new FloatingPoint())).precision();
        return fixed(precision == Precision.DOUBLE ? 8 : precision == Precision.SINGLE ? 4 : 2);
      case Type.Date:
        return fixed(((Date) field.type(new Date())).unit() == DateUnit.DAY ? 4 : 8);
      case Type.Time:
        return fixed(((Time) field.type(new Time())).bitWidth() / 8);
      case Type.Timestamp:
      case Type.Duration:
        return fixed(8);
      case Type.Interval:
        return fixed(4);
      case Type.Decimal:
        return fixed(((Decimal) field.type(new Decimal())).bitWidth() / 8);
      case Type.Utf8:
      case Type.Binary:
        return plain(BYTES);
      case Type.LargeUtf8:
      case Type.LargeBinary:
        return plain(LONG_BYTES);
      case Type.List:
      case Type.Map:
        return plain(LIST);
      case Type.LargeList:
        return plain(LONG_LIST);
      case Type.FixedSizeList:
        int size = ((FixedSizeList) field.type(new FixedSizeList())).listSize();
        if (size < 0) {
          throw Body.malformed("column " + field.name() + " has lists of " + size + " values");
        }
        return new Layout(FIXED_LIST, 0, size, -1L);
      case Type.Struct_:
        return plain(STRUCT);
      default:
        throw Body.malformed("column " + field.name() + " has the type " + field.typeType());
    }
  }

  private static Layout plain(int kind) {
    return new Layout(kind, 0, -1, -1L);
  }

  private static Layout fixed(int width) {
    return new Layout(FIXED, width, -1, -1L);
  }

  private boolean holds(DataType type) {
    if (kind == NULL) return true;
    if (type instanceof BooleanType) return kind == BITS;
    if (isBytes(type)) return kind == BYTES || kind == LONG_BYTES;
    if (type instanceof ArrayType) {
      return kind == LIST || kind == LONG_LIST || kind == FIXED_LIST;
    }
    if (type instanceof MapType) return kind == LIST;
    if (type instanceof StructType || type instanceof VariantType) return kind == STRUCT;
    if (type instanceof DecimalType) {
      boolean isLong = width == 8 && ((DecimalType) type).precision() <= MAX_LONG_DIGITS;
      return kind == FIXED && (isLong || width == DECIMAL_WIDTH);
    }
    return kind == FIXED && width == type.defaultSize();
  }

  private static DataType[] childTypes(DataType type) {
    if (type instanceof ArrayType) {
      return new DataType[] {((ArrayType) type).elementType()};
    }
    if (type instanceof MapType) {
      MapType map = (MapType) type;
      StructType entries =
          new StructType().add("key", map.keyType()).add("value", map.valueType());
      return new DataType[] {entries};
    }
    if (type instanceof VariantType) {
      return new DataType[] {
        DataTypes.BinaryType, DataTypes.BinaryType
      };
    }
    if (!(type instanceof StructType)) {
      return new DataType[0];
    }
    StructField[] fields = ((StructType) type).fields();
    DataType[] types = new DataType[fields.length];
    for (int i = 0; i < types.length; i++) {
      types[i] = fields[i].dataType();
    }
    return types;
  }

  private static boolean isBytes(DataType type) {
    return type instanceof StringType || type instanceof BinaryType;
  }

  private static boolean isBytes(Field field) {
    int kind = of(field).kind;
    return kind == BYTES || kind == LONG_BYTES;
  }

  private static void check(boolean fits, Field field, DataType type) {
    if (!fits) {
      throw Body.malformed(
          "column " + field.name() + " does not hold values of " + type.catalogString());
    }
  }
}
