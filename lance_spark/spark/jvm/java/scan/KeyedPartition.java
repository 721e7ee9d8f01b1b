package org.lancespark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.HasPartitionKey;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;

/** A partition whose rows have one value of the keys of the scan (PartitionKeys). */
public class KeyedPartition extends PythonInputPartition implements HasPartitionKey {
  private static final long serialVersionUID = 1L;

  private final transient InternalRow key;

  KeyedPartition(int index, byte[] pickled, InternalRow key) {
    super(index, pickled);
    this.key = key;
  }

  public InternalRow partitionKey() {
    return key;
  }

  /** Executors get Spark's own class: they need no key, and may not have this class. */
  protected Object writeReplace() {
    return new PythonInputPartition(index(), pickedPartition());
  }
}
