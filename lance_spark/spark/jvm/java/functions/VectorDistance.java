package org.lancespark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.UserDefinedScalarFunc;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * A function of two vectors. Spark sends it to executors.
 *
 * <p>Sums are computed in 64 bits. The result is null if a vector or an item is null, and for the
 * cosine if the length of a vector is 0.
 */
public class VectorDistance implements ScalarFunction {
  static final String L2 = "l2_distance";
  static final String COSINE = "cosine_distance";
  static final String DOT = "dot_product";

  private static final long serialVersionUID = 1L;

  private final String name;
  private final boolean leftIsFloat;
  private final boolean rightIsFloat;

  VectorDistance(String name, boolean leftIsFloat, boolean rightIsFloat) {
    this.name = name;
    this.leftIsFloat = leftIsFloat;
    this.rightIsFloat = rightIsFloat;
  }

  public DataType[] inputTypes() {
    return new DataType[] {
      VectorFunctions.arrayOf(leftIsFloat), VectorFunctions.arrayOf(rightIsFloat)
    };
  }

  public DataType resultType() {
    return DataTypes.DoubleType;
  }

  public String name() {
    return name;
  }

  public String canonicalName() {
    return VectorFunctions.PREFIX + name;
  }

  public String toString() {
    return name;
  }

  /** Computes the function. Spark's generated code calls it by its name. */
  public Double invoke(ArrayData left, ArrayData right) {
    if (left == null || right == null) {
      return null;
    }
    int items = left.numElements();
    if (items != right.numElements()) {
      throw new IllegalArgumentException(
          name
              + ": the vectors have "
              + items
              + " and "
              + right.numElements()
              + " items; both must have the same number");
    }
    double result = 0;
    double leftSquares = 0;
    double rightSquares = 0;
    boolean subtracts = name.equals(L2);
    boolean measures = name.equals(COSINE);
    for (int i = 0; i < items; i++) {
      if (left.isNullAt(i) || right.isNullAt(i)) {
        return null;
      }
      double a = leftIsFloat ? left.getFloat(i) : left.getDouble(i);
      double b = rightIsFloat ? right.getFloat(i) : right.getDouble(i);
      if (subtracts) {
        result += (a - b) * (a - b);
      } else {
        result += a * b;
        if (measures) {
          leftSquares += a * a;
          rightSquares += b * b;
        }
      }
    }
    if (subtracts) {
      return Double.valueOf(Math.sqrt(result));
    }
    if (!measures) {
      return Double.valueOf(result);
    }
    if (leftSquares == 0 || rightSquares == 0) {
      return null;
    }
    return Double.valueOf(1 - result / (Math.sqrt(leftSquares) * Math.sqrt(rightSquares)));
  }

  /**
   * Returns the key of an order (`top` of a request): the distance of a column from a constant. Null
   * for another expression.
   */
  static Map form(Expression expression) {
    if (!(expression instanceof UserDefinedScalarFunc)) {
      return null;
    }
    UserDefinedScalarFunc function = (UserDefinedScalarFunc) expression;
    Expression[] children = function.children();
    if (!function.canonicalName().equals(VectorFunctions.PREFIX + function.name()) || children.length != 2) {
      return null;
    }
    int column = children[0] instanceof NamedReference ? 0 : 1;
    if (!(children[column] instanceof NamedReference)
        || !(children[1 - column] instanceof Literal)) {
      return null;
    }
    List vector = items((Literal) children[1 - column]);
    if (vector == null) {
      return null;
    }
    Map form = Forms.column(((NamedReference) children[column]).fieldNames());
    form.put("function", function.name());
    form.put("vector", vector);
    return form;
  }

  /** Returns the items of a constant as doubles; null if not all of them are finite numbers. */
  private static List items(Literal literal) {
    if (!(literal.value() instanceof ArrayData)) {
      return null;
    }
    ArrayData array = (ArrayData) literal.value();
    boolean areFloats = literal.dataType().catalogString().equals("array<float>");
    List items = new ArrayList();
    for (int i = 0; i < array.numElements(); i++) {
      double item =
          array.isNullAt(i)
              ? Double.NaN
              : areFloats ? array.getFloat(i) : array.getDouble(i);
      if (Double.isNaN(item) || Double.isInfinite(item)) {
        return null;
      }
      items.add(Double.valueOf(item));
    }
    return items;
  }

  public boolean equals(Object other) {
    return other instanceof VectorDistance && key().equals(((VectorDistance) other).key());
  }

  public int hashCode() {
    return key().hashCode();
  }

  private String key() {
    return name + " " + leftIsFloat + " " + rightIsFloat;
  }
}
