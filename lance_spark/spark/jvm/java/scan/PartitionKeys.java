package org.lancespark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.FieldReference$;
import org.apache.spark.sql.connector.read.partitioning.KeyGroupedPartitioning;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.connector.read.partitioning.UnknownPartitioning;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The keys by which the rows of a scan are partitioned: all rows of a partition have the same
 * values. Several partitions can have the same values.
 */
final class PartitionKeys {
  static final PartitionKeys NONE =
      new PartitionKeys(new Expression[0], new InternalRow[0], Collections.EMPTY_SET);

  /** Columns, or buckets of columns. */
  private final Expression[] keys;

  /** The values of the keys by partition. */
  private final InternalRow[] values;

  private final Set distinct;

  private PartitionKeys(Expression[] keys, InternalRow[] values, Set distinct) {
    this.keys = keys;
    this.values = values;
    this.distinct = distinct;
  }

  /**
   * Parses a list of columns, or of buckets of columns.
   *
   * @param reply has the values as an Arrow stream, a row for each partition
   * @param count number of partitions
   */
  static PartitionKeys parse(List columns, StructType output, Reply reply, int count) {
    Expression[] keys = new Expression[columns.size()];
    StructType types = new StructType();
    for (int i = 0; i < keys.length; i++) {
      Map column = (Map) columns.get(i);
      String name = (String) column.get("column");
      Number buckets = (Number) column.get("buckets");
      if (buckets == null) {
        keys[i] = FieldReference$.MODULE$.column(name);
        types = types.add((StructField) output.apply(name));
      } else {
        String quoted = "`" + name.replace("`", "``") + "`";
        keys[i] = Expressions.bucket(buckets.intValue(), new String[] {quoted});
        types = types.add("bucket" + i, DataTypes.IntegerType, false);
      }
    }
    InternalRow[] values = Rows.of(reply.bytes, reply.start, reply.length, types);
    if (values == null || values.length != count) {
      return NONE;
    }
    return new PartitionKeys(keys, values, new HashSet(Arrays.asList(values)));
  }

  boolean isEmpty() {
    return keys.length == 0;
  }

  /** Returns the values of a partition. */
  InternalRow values(int partition) {
    return values[partition];
  }

  /** Returns whether other partitions have no other values, of the same keys. */
  boolean haveAllOf(PartitionKeys other) {
    return Arrays.equals(keys, other.keys) && distinct.containsAll(other.distinct);
  }

  Partitioning partitioning() {
    return isEmpty()
        ? (Partitioning) new UnknownPartitioning(0)
        : (Partitioning) new KeyGroupedPartitioning(keys, values.length);
  }

  Expression[] keys() {
    return keys;
  }

  /** Returns the text of EXPLAIN. */
  public String toString() {
    List shown = new ArrayList();
    for (int i = 0; i < keys.length; i++) {
      shown.add(keys[i].describe());
    }
    String text = shown.toString();
    return text.substring(1, text.length() - 1);
  }
}
