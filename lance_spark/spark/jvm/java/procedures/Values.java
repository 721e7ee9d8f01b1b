package org.lancespark;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/** Values of Spark's rows as JSON, and back. Times and intervals are numbers of microseconds. */
final class Values {
  private Values() {}

  static Object toJson(Object value, DataType type) {
    if (value == null) {
      return null;
    }
    if (type instanceof StringType) {
      return value.toString();
    }
    if (type instanceof ArrayType) {
      ArrayData array = (ArrayData) value;
      DataType element = ((ArrayType) type).elementType();
      List list = new ArrayList();
      for (int i = 0; i < array.numElements(); i++) {
        list.add(array.isNullAt(i) ? null : toJson(array.get(i, element), element));
      }
      return list;
    }
    if (type instanceof MapType) {
      MapType mapType = (MapType) type;
      MapData data = (MapData) value;
      List keys = (List) toJson(data.keyArray(), new ArrayType(mapType.keyType(), false));
      List values = (List) toJson(data.valueArray(), new ArrayType(mapType.valueType(), true));
      Map map = new LinkedHashMap();
      for (int i = 0; i < keys.size(); i++) {
        map.put(keys.get(i), values.get(i));
      }
      return map;
    }
    return value;
  }

  static Object toSpark(Object value, DataType type) {
    if (value == null) {
      return null;
    }
    if (type instanceof StructType) {
      StructType struct = (StructType) type;
      List row = (List) value;
      Object[] converted = new Object[row.size()];
      for (int i = 0; i < converted.length; i++) {
        converted[i] = toSpark(row.get(i), struct.apply(i).dataType());
      }
      return new GenericInternalRow(converted);
    }
    if (type instanceof StringType) {
      return UTF8String.fromString((String) value);
    }
    if (type instanceof LongType || type instanceof TimestampType) {
      return Long.valueOf(((Number) value).longValue());
    }
    if (type instanceof IntegerType) {
      return Integer.valueOf(((Number) value).intValue());
    }
    if (type instanceof DoubleType) {
      return Double.valueOf(((Number) value).doubleValue());
    }
    if (type instanceof ArrayType) {
      return array((List) value, ((ArrayType) type).elementType());
    }
    if (type instanceof MapType) {
      List keys = new ArrayList();
      List values = new ArrayList();
      for (Iterator i = ((Map) value).entrySet().iterator(); i.hasNext(); ) {
        Map.Entry entry = (Map.Entry) i.next();
        keys.add(entry.getKey());
        values.add(entry.getValue());
      }
      MapType mapType = (MapType) type;
      return new ArrayBasedMapData(
          array(keys, mapType.keyType()), array(values, mapType.valueType()));
    }
    return value;
  }

  private static ArrayData array(List values, DataType element) {
    Object[] converted = new Object[values.size()];
    for (int i = 0; i < converted.length; i++) {
      converted[i] = toSpark(values.get(i), element);
    }
    return new GenericArrayData(converted);
  }
}
