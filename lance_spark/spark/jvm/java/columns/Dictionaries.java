package org.lancespark;

import java.util.HashMap;
import java.util.Map;
import org.apache.arrow.flatbuf.Field;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** The dictionaries of the columns of an Arrow stream. */
final class Dictionaries {
  private final Map columns = new HashMap();
  private final Map strings = new HashMap();

  /** Finds the fields whose columns have a dictionary. */
  void describe(Field field) {
    if (field.dictionary() != null) {
      // Strings and bytes alike: both are read as bytes.
      columns.put(
          Long.valueOf(field.dictionary().id()), Layout.values(field, DataTypes.BinaryType));
    }
    for (int i = 0; i < field.childrenLength(); i++) {
      describe(field.children(i));
    }
  }

  /** Takes the values of a dictionary. */
  void load(long id, Body body) {
    ArrowColumn column = (ArrowColumn) columns.get(Long.valueOf(id));
    if (column == null) {
      throw Body.malformed("no column has dictionary " + id);
    }
    column.load(body, this);
    strings.put(Long.valueOf(id), column.copyStrings());
  }

  UTF8String[] strings(long id) {
    UTF8String[] values = (UTF8String[]) strings.get(Long.valueOf(id));
    if (values == null) {
      throw Body.malformed("dictionary " + id + " is missing");
    }
    return values;
  }
}
