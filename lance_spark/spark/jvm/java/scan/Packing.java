package org.lancespark;

import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.KnownNotNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.OctetLength;
import org.apache.spark.sql.catalyst.expressions.UnsafeArrayData;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Packed arrays: arrays of numbers that a scan returns as the bytes of their items.
 *
 * <p>Spark reads the items of an array from Arrow's vectors, and writes them into its rows, one by
 * one. It copies bytes at once.
 *
 * <pre>
 *   scan      column: binary, the items' bytes; __lance_items_0: the array, where an item is null
 *   project   coalesce(
 *                 UnsafeArrayData.fromPrimitiveArray(column, offset, length / width, width),
 *                 __lance_items_0)
 * </pre>
 *
 * <p>The expression calls Spark's own classes only, because executors may have no others. Executors
 * that get columns have these classes. There the column's type is string, whose values are read in
 * place, and the first expression is `PackedArray.of(column, width)`.
 */
final class Packing {
  /** Setting: whether arrays of numbers are packed. */
  static final String ARRAYS = "spark.lance.pushdown.arrays";

  /** The type of the bytes in batches of columns: its values are not copied, as those of binary. */
  static final DataType IN_PLACE = DataTypes.StringType;

  private static final String ITEMS = "__lance_items_";

  private Packing() {}

  /** Returns the names of the columns of a scan that are packed. */
  static List columns(StructType output) {
    List names = new ArrayList();
    if (ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN
        && Boolean.parseBoolean(SQLConf.get().getConfString(ARRAYS, "true"))) {
      for (int i = 0; i < output.length(); i++) {
        if (output.fields()[i].name().startsWith(ITEMS)) {
          return new ArrayList();
        }
        if (width(output.fields()[i].dataType()) > 0) {
          names.add(output.fields()[i].name());
        }
      }
    }
    return names;
  }

  /** Returns the bytes of an item, or -1 if columns of the type are not packed. */
  private static int width(DataType type) {
    if (!(type instanceof ArrayType)) {
      return -1;
    }
    DataType item = ((ArrayType) type).elementType();
    boolean isNumber =
        item instanceof ByteType
            || item instanceof ShortType
            || item instanceof IntegerType
            || item instanceof LongType
            || item instanceof FloatType
            || item instanceof DoubleType;
    return isNumber ? item.defaultSize() : -1;
  }

  /**
   * Returns the columns of a scan with packed columns, whose type is `bytes`. Their arrays with
   * null items come last.
   */
  static StructType schema(StructType output, List names, DataType bytes) {
    StructField[] fields = (StructField[]) output.fields().clone();
    StructType items = new StructType();
    for (int i = 0; i < fields.length; i++) {
      if (names.contains(fields[i].name())) {
        items = items.add(ITEMS + items.length(), fields[i].dataType(), true);
        fields[i] = new StructField(fields[i].name(), bytes, true, fields[i].metadata());
      }
    }
    StructType packed = new StructType(fields);
    for (int i = 0; i < items.length(); i++) {
      packed = packed.add(items.fields()[i]);
    }
    return packed;
  }

  /** Returns the relation over a packed scan, and above it the projection that unpacks arrays. */
  static LogicalPlan unpacked(DataSourceV2ScanRelation relation, PackedScan scan)
      throws ReflectiveOperationException {
    StructField[] fields = scan.readSchema().fields();
    int columns = relation.output().size();
    List output = new ArrayList();
    for (int i = 0; i < fields.length; i++) {
      AttributeReference old = i < columns ? (AttributeReference) relation.output().apply(i) : null;
      boolean same = old != null && old.dataType().equals(fields[i].dataType());
      output.add(same ? old : attribute(fields[i]));
    }
    List projected = new ArrayList();
    int items = columns;
    for (int i = 0; i < columns; i++) {
      AttributeReference wanted = (AttributeReference) relation.output().apply(i);
      Expression column = (Expression) output.get(i);
      if (column != wanted) {
        Expression others = (Expression) output.get(items++);
        Expression array = array(column, wanted.dataType(), others, wanted.nullable());
        column =
            new Alias(
                array,
                wanted.name(),
                wanted.exprId(),
                wanted.qualifier(),
                Option.apply(wanted.metadata()),
                none());
      }
      projected.add(column);
    }
    Object read =
        SparkShims.copy(relation, new SparkField[] {SparkField.SCAN, SparkField.OUTPUT}, new Object[] {scan, seq(output)});
    return new Project(seq(projected), (LogicalPlan) read);
  }

  private static AttributeReference attribute(StructField field) {
    return new AttributeReference(
        field.name(),
        field.dataType(),
        true,
        field.metadata(),
        NamedExpression$.MODULE$.newExprId(),
        none());
  }

  /**
   * Returns the expression that makes arrays of bytes, or takes `others` where the bytes are null.
   */
  private static Expression array(
      Expression bytes, DataType type, Expression others, boolean nullable) {
    Expression width = new Literal(Integer.valueOf(width(type)), DataTypes.IntegerType);
    Expression unpacked =
        bytes.dataType().equals(IN_PLACE)
            ? invoke(PackedArray.class, "of", type, new Expression[] {bytes, width}, true)
            : arrayOfBinary(bytes, width, type);
    Expression either = new Coalesce(seq(Arrays.asList(new Expression[] {unpacked, others})));
    return nullable ? either : new KnownNotNull(either);
  }

  private static Expression arrayOfBinary(Expression bytes, Expression width, DataType type) {
    // The offset of a byte[] is computed where the expression runs: it may differ between JVMs.
    Expression text = new Literal(UTF8String.EMPTY_UTF8, DataTypes.StringType);
    Expression start =
        new Invoke(text, "getBaseOffset", DataTypes.LongType, none(), none(), true, false, true);
    Expression[] lengths = {new OctetLength(bytes), width};
    Expression[] arguments = {
      bytes,
      invoke(Math.class, "toIntExact", DataTypes.IntegerType, new Expression[] {start}, false),
      invoke(Integer.class, "divideUnsigned", DataTypes.IntegerType, lengths, false),
      width
    };
    return invoke(UnsafeArrayData.class, "fromPrimitiveArray", type, arguments, true);
  }

  private static Expression invoke(
      Class owner, String name, DataType type, Expression[] arguments, boolean returnsNull) {
    Seq values = seq(Arrays.asList(arguments));
    return new StaticInvoke(
        owner, type, name, values, none(), true, returnsNull, true, Option.empty());
  }

  private static Seq seq(List list) {
    return CollectionConverters.asScala(list).toSeq();
  }

  private static Seq none() {
    return (Seq) Nil$.MODULE$;
  }
}
