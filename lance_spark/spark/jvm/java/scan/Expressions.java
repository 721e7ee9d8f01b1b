package org.lancespark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.ArrayContains;
import org.apache.spark.sql.catalyst.expressions.ArraysOverlap;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.BinaryExpression;
import org.apache.spark.sql.catalyst.expressions.Contains;
import org.apache.spark.sql.catalyst.expressions.EndsWith;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNaN;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;

/**
 * Writes Catalyst expressions as forms (Forms), if the reader answers them exactly as Spark would.
 */
final class Expressions {
  private Expressions() {}

  /** Returns the form of a filter, or null if Spark must answer it. */
  static Object write(Expression e) {
    if (!e.deterministic()) {
      return null;
    }
    if (e instanceof And) {
      return Forms.operation("and", new Object[] {write(left(e)), write(right(e))});
    }
    if (e instanceof Or) {
      return Forms.operation("or", new Object[] {write(left(e)), write(right(e))});
    }
    if (e instanceof Not) {
      return Forms.operation("not", new Object[] {write((Expression) ((Not) e).child())});
    }
    if (e instanceof IsNull) {
      Object column = column((Expression) ((IsNull) e).child(), true);
      return Forms.operation("is_null", new Object[] {column});
    }
    if (e instanceof IsNotNull) {
      Object column = column((Expression) ((IsNotNull) e).child(), true);
      return Forms.operation("is_not_null", new Object[] {column});
    }
    if (e instanceof IsNaN) {
      Object column = column((Expression) ((IsNaN) e).child(), false);
      return Forms.operation("is_nan", new Object[] {column});
    }
    if (e instanceof BinaryComparison) {
      String name = comparison(e);
      if (name == null || (left(e) instanceof Literal && right(e) instanceof Literal)) {
        return null;
      }
      return Forms.operation(name, new Object[] {value(left(e)), value(right(e))});
    }
    if (e instanceof In) {
      return in(((In) e).value(), ((In) e).list().iterator(), null);
    }
    if (e instanceof InSet) {
      Expression child = (Expression) ((InSet) e).child();
      return in(child, ((InSet) e).hset().iterator(), child.dataType());
    }
    if (e instanceof StartsWith) {
      return text("starts_with", e);
    }
    if (e instanceof EndsWith) {
      return text("ends_with", e);
    }
    if (e instanceof Contains) {
      return text("contains", e);
    }
    if (e instanceof Like) {
      Map form = text("like", e);
      if (form != null) {
        form.put("escape", String.valueOf(((Like) e).escapeChar()));
      }
      return form;
    }
    if (e instanceof ArrayContains) {
      return arrayContains(left(e), right(e));
    }
    if (e instanceof ArraysOverlap) {
      return left(e) instanceof Literal
          ? arraysOverlap(right(e), left(e))
          : arraysOverlap(left(e), right(e));
    }
    return e.dataType() instanceof BooleanType ? value(e) : null;
  }

  private static Expression left(Expression e) {
    return (Expression) ((BinaryExpression) e).left();
  }

  private static Expression right(Expression e) {
    return (Expression) ((BinaryExpression) e).right();
  }

  private static String comparison(Expression e) {
    if (e instanceof EqualTo) return "=";
    if (e instanceof EqualNullSafe) return "<=>";
    if (e instanceof GreaterThan) return ">";
    if (e instanceof GreaterThanOrEqual) return ">=";
    if (e instanceof LessThan) return "<";
    if (e instanceof LessThanOrEqual) return "<=";
    return null;
  }

  /** Items are expressions if the type is null, else values of the type. */
  private static Map in(Expression value, Iterator items, DataType type) {
    List arguments = new ArrayList();
    arguments.add(column(value, false));
    while (items.hasNext()) {
      Object item = items.next();
      arguments.add(type == null ? literal((Expression) item) : Forms.literal(item, type));
    }
    return arguments.size() < 2 ? null : Forms.operation("in", arguments.toArray());
  }

  private static Map text(String name, Expression e) {
    if (!(right(e) instanceof Literal) || !left(e).dataType().equals(DataTypes.StringType)) {
      return null;
    }
    return Forms.operation(name, new Object[] {column(left(e), false), value(right(e))});
  }

  private static Map arrayContains(Expression array, Expression value) {
    if (!value.dataType().equals(((ArrayType) array.dataType()).elementType())) {
      return null;
    }
    return Forms.operation("array_contains", new Object[] {column(array, true), literal(value)});
  }

  private static Map arraysOverlap(Expression array, Expression other) {
    DataType type = ((ArrayType) array.dataType()).elementType();
    if (!(other instanceof Literal)
        || ((Literal) other).value() == null
        || !type.equals(((ArrayType) other.dataType()).elementType())) {
      return null;
    }
    ArrayData items = (ArrayData) ((Literal) other).value();
    Object[] arguments = new Object[items.numElements() + 1];
    arguments[0] = column(array, true);
    for (int i = 0; i < items.numElements(); i++) {
      arguments[i + 1] = Forms.literal(items.isNullAt(i) ? null : items.get(i, type), type);
    }
    return Forms.operation("arrays_overlap", arguments);
  }

  private static Map value(Expression e) {
    return e instanceof Literal ? literal(e) : column(e, false);
  }

  private static Map literal(Expression e) {
    return e instanceof Literal ? Forms.literal(((Literal) e).value(), e.dataType()) : null;
  }

  private static Map column(Expression e, boolean anyType) {
    List path = new ArrayList();
    Expression inner = e;
    while (inner instanceof GetStructField) {
      GetStructField get = (GetStructField) inner;
      Expression struct = (Expression) get.child();
      path.add(0, ((StructType) struct.dataType()).fields()[get.ordinal()].name());
      inner = struct;
    }
    if (!(inner instanceof AttributeReference) || !(anyType || Forms.isComparable(e.dataType()))) {
      return null;
    }
    path.add(0, ((AttributeReference) inner).name());
    return Forms.column(path);
  }
}
