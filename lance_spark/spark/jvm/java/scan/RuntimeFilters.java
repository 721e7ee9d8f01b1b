package org.lancespark;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.FieldReference$;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Runtime filters of joins: the keys of the smaller side, which Spark knows once it has broadcast
 * that side. A scan of the other side returns only rows with these keys.
 *
 * <p>Spark joins the rows anyway, so a scan may return more of them. More than MAX_KEYS keys are
 * replaced by their range.
 */
final class RuntimeFilters {
  /** Each task gets the keys. */
  private static final int MAX_KEYS = 10000;

  /**
   * The filters that Spark has given to a scan of this thread. Spark then asks the same scan for
   * its batch, which takes them. The scan does not keep them: other nodes of the plan may read it
   * without filters.
   */
  private static final ThreadLocal GIVEN = new ThreadLocal();

  private RuntimeFilters() {}

  /** Returns the columns that are filtered; none if two names differ by case only. */
  static NamedReference[] columns(StructType output) {
    List columns = new ArrayList();
    Set names = new HashSet();
    StructField[] fields = output.fields();
    for (int i = 0; i < fields.length; i++) {
      if (!names.add(fields[i].name().toLowerCase(Locale.ROOT))) {
        return new NamedReference[0];
      }
      DataType type = fields[i].dataType();
      if (Forms.isOrdered(type) || type.equals(DataTypes.StringType)) {
        columns.add(FieldReference$.MODULE$.column(fields[i].name()));
      }
    }
    return (NamedReference[]) columns.toArray(new NamedReference[columns.size()]);
  }

  /** Keeps the filters until the scan is asked for its batch. */
  static void give(Object scan, Predicate[] predicates, StructType output) {
    List forms = new ArrayList();
    for (int i = 0; i < predicates.length; i++) {
      Object form = form(predicates[i], output);
      if (Forms.isSent(form)) {
        forms.add(form);
      }
    }
    GIVEN.set(forms.isEmpty() ? null : new Object[] {scan, forms});
  }

  /** Returns the forms of the filters that the scan was given last, once; else null. */
  static List take(Object scan) {
    Object[] given = (Object[]) GIVEN.get();
    GIVEN.remove();
    return given == null || given[0] != scan ? null : (List) given[1];
  }

  private static Object form(Predicate predicate, StructType output) {
    Expression[] children = predicate.children();
    if (!predicate.name().equals("IN") || children.length - 1 <= MAX_KEYS) {
      boolean isEmpty = predicate.name().equals("IN") && children.length == 1;
      return isEmpty
          ? Forms.literal(Boolean.FALSE, DataTypes.BooleanType)
          : Predicates.write(predicate, output);
    }
    String[] path = ((NamedReference) children[0]).fieldNames();
    DataType type = Forms.typeAt(output, path);
    if (type == null || !Forms.isOrdered(type)) {
      return null;
    }
    Comparable least = null;
    Comparable greatest = null;
    for (int i = 1; i < children.length; i++) {
      Comparable key = (Comparable) ((Literal) children[i]).value();
      if (key == null) {
        continue;
      }
      least = least == null || key.compareTo(least) < 0 ? key : least;
      greatest = greatest == null || key.compareTo(greatest) > 0 ? key : greatest;
    }
    Object column = Forms.column(path);
    Object[] bounds = {
      Forms.operation(">=", new Object[] {column, Forms.literal(least, type)}),
      Forms.operation("<=", new Object[] {column, Forms.literal(greatest, type)})
    };
    return Forms.operation("and", bounds);
  }
}
