package org.lancespark;

import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;

/**
 * Divides a vector by its length. Spark sends it to executors.
 *
 * <p>The result is null if the vector or an item is null, or the length is 0.
 */
public class UnitVector implements ScalarFunction {
  private static final long serialVersionUID = 1L;

  private final String name;
  private final boolean isFloat;

  UnitVector(String name, boolean isFloat) {
    this.name = name;
    this.isFloat = isFloat;
  }

  public DataType[] inputTypes() {
    return new DataType[] {VectorFunctions.arrayOf(isFloat)};
  }

  public DataType resultType() {
    return VectorFunctions.arrayOf(isFloat);
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
  public ArrayData invoke(ArrayData vector) {
    if (vector == null) {
      return null;
    }
    int items = vector.numElements();
    double squares = 0;
    for (int i = 0; i < items; i++) {
      if (vector.isNullAt(i)) {
        return null;
      }
      double item = isFloat ? vector.getFloat(i) : vector.getDouble(i);
      squares += item * item;
    }
    if (squares == 0) {
      return null;
    }
    double length = Math.sqrt(squares);
    if (isFloat) {
      float[] unit = new float[items];
      for (int i = 0; i < items; i++) {
        unit[i] = (float) (vector.getFloat(i) / length);
      }
      return ArrayData.toArrayData(unit);
    }
    double[] unit = new double[items];
    for (int i = 0; i < items; i++) {
      unit[i] = vector.getDouble(i) / length;
    }
    return ArrayData.toArrayData(unit);
  }

  public boolean equals(Object other) {
    return other instanceof UnitVector && ((UnitVector) other).isFloat == isFloat;
  }

  public int hashCode() {
    return isFloat ? 1 : 2;
  }
}
