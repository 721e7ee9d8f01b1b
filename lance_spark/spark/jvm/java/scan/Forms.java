package org.lancespark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.AtomicType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;

/**
 * Makes forms, the parts of a request: {"col": [names]}, {"lit": text or null, "type": Spark's
 * name}, {"op": name, "args": [forms]}.
 *
 * <p>The text of a literal is Spark's internal value: days of a date, microseconds of a timestamp or
 * interval, nanoseconds of a time of day, hexadecimal digits of binary.
 */
final class Forms {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int MAX_DEPTH = 100;

  /** Bytes of a decimal, the largest type of a fixed size. */
  private static final int MAX_FIXED_BYTES = 16;

  /** Most parts of a condition, or values of an IN. */
  private static final int MAX_ARGUMENTS = 10000;

  private Forms() {}

  static Map column(Object path) {
    Map form = new LinkedHashMap();
    form.put("col", path);
    return form;
  }

  /**
   * Returns the form of a literal, or null if its type is not compared, or if it is a string whose
   * bytes are not UTF-8: its text would have other characters.
   */
  static Map literal(Object value, DataType type) {
    if (!isComparable(type)) {
      return null;
    }
    Map form = new LinkedHashMap();
    String text = value instanceof byte[] ? hex((byte[]) value) : String.valueOf(value);
    if (value instanceof UTF8String && !UTF8String.fromString(text).equals(value)) {
      return null;
    }
    form.put("lit", value == null ? null : text);
    form.put("type", type.catalogString());
    return form;
  }

  /**
   * Returns the form of an operation, or null if an argument is null. Nested and, and nested or,
   * are flattened.
   */
  static Map operation(String name, Object[] arguments) {
    boolean chain = name.equals("and") || name.equals("or");
    List list = new ArrayList();
    for (int i = 0; i < arguments.length; i++) {
      if (arguments[i] == null) {
        return null;
      }
      if (chain && name.equals(((Map) arguments[i]).get("op"))) {
        list.addAll((List) ((Map) arguments[i]).get("args"));
      } else {
        list.add(arguments[i]);
      }
    }
    Map form = new LinkedHashMap();
    form.put("op", name);
    form.put("args", list);
    return form;
  }

  /**
   * Returns whether a filter is sent: not if it is nested too deeply for the reader, or too long.
   */
  static boolean isSent(Object form) {
    return form != null && isSent(form, 0);
  }

  private static boolean isSent(Object form, int depth) {
    List arguments = (List) ((Map) form).get("args");
    if (arguments == null) {
      return true;
    }
    // The first argument of an IN is its column.
    int values = arguments.size() - ("in".equals(((Map) form).get("op")) ? 1 : 0);
    if (depth > MAX_DEPTH || values > MAX_ARGUMENTS) {
      return false;
    }
    for (int i = 0; i < arguments.size(); i++) {
      if (!isSent(arguments.get(i), depth + 1)) {
        return false;
      }
    }
    return true;
  }

  /** Returns whether the reader compares a type as Spark does: not strings with collations. */
  static boolean isComparable(DataType t) {
    return isOrdered(t)
        || t.equals(DataTypes.BooleanType)
        || t.equals(DataTypes.FloatType)
        || t.equals(DataTypes.DoubleType)
        || t.equals(DataTypes.StringType)
        || t.equals(DataTypes.BinaryType)
        || t instanceof DayTimeIntervalType
        // Spark 4.0 has no class TimeType.
        || t.catalogString().equals("time(6)");
  }

  /** Returns whether values of a type are ordered as integers are. */
  static boolean isOrdered(DataType t) {
    return t.equals(DataTypes.ByteType)
        || t.equals(DataTypes.ShortType)
        || t.equals(DataTypes.IntegerType)
        || t.equals(DataTypes.LongType)
        || t.equals(DataTypes.DateType)
        || t.equals(DataTypes.TimestampType)
        || t.equals(DataTypes.TimestampNTZType)
        || t instanceof DecimalType;
  }

  /** Returns whether the least and the greatest value of a type are those of Spark. */
  static boolean hasExtremes(DataType t) {
    return isOrdered(t)
        || t.equals(DataTypes.BooleanType)
        || t.equals(DataTypes.FloatType)
        || t.equals(DataTypes.DoubleType)
        || t.equals(DataTypes.StringType)
        || t.equals(DataTypes.BinaryType);
  }

  /** Returns whether equal values of a type are the same bytes: not those of floats. */
  static boolean isGrouped(DataType t) {
    return isOrdered(t)
        || t.equals(DataTypes.BooleanType)
        || t.equals(DataTypes.StringType)
        || t.equals(DataTypes.BinaryType);
  }

  /** Returns whether each value of a type takes the same few bytes: numbers, dates and times. */
  static boolean isOfFixedSize(DataType t) {
    return t instanceof AtomicType && t.defaultSize() <= MAX_FIXED_BYTES;
  }

  /** Returns the type of Spark's sum of a column, or null if the reader does not add it up. */
  static DataType sumOf(DataType t) {
    if (t instanceof DecimalType) {
      int precision = ((DecimalType) t).precision();
      int scale = ((DecimalType) t).scale();
      return DataTypes.createDecimalType(Math.min(precision + 10, DecimalType.MAX_PRECISION()), scale);
    }
    boolean isInteger =
        t.equals(DataTypes.ByteType)
            || t.equals(DataTypes.ShortType)
            || t.equals(DataTypes.IntegerType)
            || t.equals(DataTypes.LongType);
    return isInteger ? DataTypes.LongType : null;
  }

  /** Returns the type of a column or of a struct's child, or null if it is not found. */
  static DataType typeAt(StructType schema, String[] path) {
    DataType type = schema;
    for (int i = 0; i < path.length; i++) {
      if (!(type instanceof StructType)) {
        return null;
      }
      Option index = ((StructType) type).getFieldIndex(path[i]);
      if (index.isEmpty()) {
        return null;
      }
      type = ((StructType) type).fields()[((Integer) index.get()).intValue()].dataType();
    }
    return type;
  }

  /** Returns the column with the narrowest values. */
  static StructType narrowest(StructType schema) {
    StructField[] fields = schema.fields();
    StructField best = fields[0];
    for (int i = 1; i < fields.length; i++) {
      if (fields[i].dataType().defaultSize() < best.dataType().defaultSize()) {
        best = fields[i];
      }
    }
    return new StructType(new StructField[] {best});
  }

  static String json(Object value) {
    try {
      return JSON.writeValueAsString(value);
    } catch (java.io.IOException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Returns the lists and maps of a JSON text. */
  static Object parsed(String json) {
    try {
      return JSON.readValue(json, Object.class);
    } catch (java.io.IOException e) {
      throw new IllegalStateException(e);
    }
  }

  private static String hex(byte[] bytes) {
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < bytes.length; i++) {
      text.append(Integer.toHexString((bytes[i] & 0xff) | 0x100).substring(1));
    }
    return text.toString();
  }
}
