package org.lancespark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** Writes predicates of the connector API as forms (Forms). */
final class Predicates {
  private static final List LOGIC = Arrays.asList(new String[] {"AND", "OR", "NOT"});
  private static final List OTHERS =
      Arrays.asList(
          new String[] {
            "=", "<=>", ">", ">=", "<", "<=", "IN", "IS_NULL", "IS_NOT_NULL", "STARTS_WITH",
            "ENDS_WITH", "CONTAINS"
          });

  /** Operations on a column and literals only. */
  private static final List LITERALS =
      Arrays.asList(new String[] {"IN", "STARTS_WITH", "ENDS_WITH", "CONTAINS"});

  private Predicates() {}

  /** Returns the forms of predicates, or null if Python cannot answer one of them exactly. */
  static List all(Predicate[] predicates, StructType schema) {
    List forms = new ArrayList();
    for (int i = 0; i < predicates.length; i++) {
      if (predicates[i].name().equals("ALWAYS_TRUE")) {
        continue;
      }
      Object form = write(predicates[i], schema);
      if (!Forms.isSent(form)) {
        return null;
      }
      forms.add(form);
    }
    return forms;
  }

  /** Returns the form of a predicate, or null if Spark must answer it. */
  static Object write(Expression expression, StructType schema) {
    if (!(expression instanceof Predicate)) {
      return null;
    }
    String name = ((Predicate) expression).name();
    if (name.equals("ALWAYS_FALSE")) {
      return Forms.literal(Boolean.FALSE, DataTypes.BooleanType);
    }
    boolean logic = LOGIC.contains(name);
    if (!logic && !OTHERS.contains(name)) {
      return null;
    }
    Expression[] children = expression.children();
    Object[] arguments = new Object[children.length];
    for (int i = 0; i < children.length; i++) {
      if (i > 0 && LITERALS.contains(name) && !(children[i] instanceof Literal)) {
        return null;
      }
      arguments[i] =
          logic
              ? write(children[i], schema)
              : value(children[i], schema, name.startsWith("IS_"));
    }
    return Forms.operation(name.toLowerCase(java.util.Locale.ROOT), arguments);
  }

  private static Object value(Expression expression, StructType schema, boolean anyType) {
    if (expression instanceof Literal) {
      return Forms.literal(((Literal) expression).value(), ((Literal) expression).dataType());
    }
    if (!(expression instanceof NamedReference)) {
      return null;
    }
    String[] path = ((NamedReference) expression).fieldNames();
    DataType type = Forms.typeAt(schema, path);
    return type == null || !(anyType || Forms.isComparable(type)) ? null : Forms.column(path);
  }
}
