package org.lancespark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** Changes of a table as JSON: the "op" is the name of Spark's class. */
final class TableChanges {
  private TableChanges() {}

  static List write(TableChange[] changes) {
    List results = new ArrayList();
    for (int i = 0; i < changes.length; i++) {
      results.add(write(changes[i]));
    }
    return results;
  }

  private static Map write(TableChange change) {
    Map result = new LinkedHashMap();
    result.put("op", change.getClass().getSimpleName());
    if (change instanceof TableChange.SetProperty) {
      TableChange.SetProperty set = (TableChange.SetProperty) change;
      result.put("property", set.property());
      result.put("value", set.value());
    } else if (change instanceof TableChange.RemoveProperty) {
      result.put("property", ((TableChange.RemoveProperty) change).property());
    } else if (change instanceof TableChange.ColumnChange) {
      result.put("column", Arrays.asList(((TableChange.ColumnChange) change).fieldNames()));
      addColumnChange(result, change);
    }
    /* since 4.1
    Constraints.addChange(result, change);
    since 4.1 */
    return result;
  }

  private static void addColumnChange(Map result, TableChange change) {
    if (change instanceof TableChange.AddColumn) {
      TableChange.AddColumn add = (TableChange.AddColumn) change;
      result.put("type", json(add.dataType()));
      result.put("nullable", Boolean.valueOf(add.isNullable()));
      result.put("comment", add.comment());
      result.put("position", position(add.position()));
      if (add.defaultValue() != null) {
        result.put("default", SparkShims.sqlOf(add.defaultValue()));
        result.put("value", value(add.defaultValue().getValue()));
      }
    } else if (change instanceof TableChange.RenameColumn) {
      result.put("name", ((TableChange.RenameColumn) change).newName());
    } else if (change instanceof TableChange.UpdateColumnType) {
      result.put("type", json(((TableChange.UpdateColumnType) change).newDataType()));
    } else if (change instanceof TableChange.UpdateColumnNullability) {
      TableChange.UpdateColumnNullability update = (TableChange.UpdateColumnNullability) change;
      result.put("nullable", Boolean.valueOf(update.nullable()));
    } else if (change instanceof TableChange.UpdateColumnComment) {
      result.put("comment", ((TableChange.UpdateColumnComment) change).newComment());
    } else if (change instanceof TableChange.UpdateColumnPosition) {
      result.put("position", position(((TableChange.UpdateColumnPosition) change).position()));
    } else if (change instanceof TableChange.UpdateColumnDefaultValue) {
      result.put("default", ((TableChange.UpdateColumnDefaultValue) change).newDefaultValue());
    } else if (change instanceof TableChange.DeleteColumn) {
      result.put("if_exists", ((TableChange.DeleteColumn) change).ifExists());
    }
  }

  /**
   * Returns columns as JSON. Spark's JSON of char(n) lacks its collation, and that of a type the
   * collations inside it: char(n) and varchar(n) are strings here, whose metadata has the type,
   * unless a setting of Spark makes them plain strings.
   */
  static String json(StructType columns) {
    if (SQLConf.get().charVarcharAsString()) {
      return CharVarcharUtils.replaceCharVarcharWithString(columns).json();
    }
    return CharVarcharUtils.replaceCharVarcharWithStringInSchema(columns).json();
  }

  private static String json(DataType type) {
    return json(new StructType().add("c", type));
  }

  /** Returns the form of a literal, or null if its type has none. */
  private static Map value(Literal literal) {
    if (literal.value() != null) {
      return Forms.literal(literal.value(), literal.dataType());
    }
    Map form = new LinkedHashMap();
    form.put("lit", null);
    return form;
  }

  /** Returns a list: empty for the first position, or the name of the column before it. */
  private static List position(TableChange.ColumnPosition position) {
    if (position == null) {
      return null;
    }
    List result = new ArrayList();
    if (position instanceof TableChange.After) {
      result.add(((TableChange.After) position).column());
    }
    return result;
  }
}
