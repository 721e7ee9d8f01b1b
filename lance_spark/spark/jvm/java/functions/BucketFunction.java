package org.lancespark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The bucket of a value, as the sharding of a MemWAL defines it (lance_spark/mem_wal/sharding.py):
 * Murmur3 with the seed 0, and 0 for null.
 */
public class BucketFunction implements ScalarFunction {
  private static final long serialVersionUID = 1L;

  private static final String NAME = "bucket";

  private final DataType type;

  private BucketFunction(DataType type) {
    this.type = type;
  }

  public String name() {
    return NAME;
  }

  /** Returns the name by which Spark knows that two tables have the same buckets. */
  public String canonicalName() {
    return VectorFunctions.PREFIX + NAME + "(" + type.catalogString() + ")";
  }

  public DataType[] inputTypes() {
    return new DataType[] {DataTypes.IntegerType, type};
  }

  public DataType resultType() {
    return DataTypes.IntegerType;
  }

  public boolean isResultNullable() {
    return false;
  }

  /**
   * Returns the bucket of the second argument, among as many as the first. The values of the other
   * side of a join go to the partitions of this function, too.
   */
  public Object produceResult(InternalRow input) {
    int buckets = input.getInt(0);
    if (input.isNullAt(1)) {
      return Integer.valueOf(0);
    }
    return Integer.valueOf((hash(input) & Integer.MAX_VALUE) % buckets);
  }

  private int hash(InternalRow input) {
    if (type.equals(DataTypes.StringType)) {
      UTF8String text = input.getUTF8String(1);
      return Murmur3_x86_32.hashUnsafeBytes(
          text.getBaseObject(), text.getBaseOffset(), text.numBytes(), 0);
    }
    if (type instanceof BooleanType) {
      return Murmur3_x86_32.hashInt(input.getBoolean(1) ? 1 : 0, 0);
    }
    if (type instanceof ByteType) {
      return Murmur3_x86_32.hashInt(input.getByte(1), 0);
    }
    if (type instanceof ShortType) {
      return Murmur3_x86_32.hashInt(input.getShort(1), 0);
    }
    if (type instanceof IntegerType || type instanceof DateType) {
      return Murmur3_x86_32.hashInt(input.getInt(1), 0);
    }
    return Murmur3_x86_32.hashLong(input.getLong(1), 0);
  }

  /** The functions that Spark finds for the keys of a scan: this one. */
  static class Functions implements FunctionCatalog, UnboundFunction {
    private static final long serialVersionUID = 1L;

    public void initialize(String name, CaseInsensitiveStringMap options) {}

    public String name() {
      return NAME;
    }

    public String description() {
      return "bucket(number of buckets, value)";
    }

    public Identifier[] listFunctions(String[] namespace) {
      return new Identifier[0];
    }

    public UnboundFunction loadFunction(Identifier identifier) throws NoSuchFunctionException {
      if (identifier.name().equals(NAME)) {
        return this;
      }
      throw new NoSuchFunctionException(identifier);
    }

    public BoundFunction bind(StructType types) {
      return new BucketFunction(types.fields()[1].dataType());
    }
  }
}
