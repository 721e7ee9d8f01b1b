package org.lancespark;

import java.nio.ByteOrder;
import java.util.Map;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;

/** Makes readers of batches. Spark sends it to executors. */
public class ColumnarFactory implements PartitionReaderFactory {
  /** Setting: whether scans return columns in place of rows. */
  static final String ENABLED = "spark.lance.columnar.enabled";

  /** Setting: whether workers may write batches into memory that this JVM shares with them. */
  static final String SHARED_MEMORY = "spark.lance.columnar.sharedMemory";

  private static final long serialVersionUID = 1L;

  private final PartitionReaderFactory python;
  private final StructType output;

  /**
   * Makes a factory.
   *
   * @param python Spark's own factory, whose rows have the columns `ColumnarReader.SENT`
   * @param output columns of the batches
   */
  ColumnarFactory(PartitionReaderFactory python, StructType output) {
    this.python = python;
    this.output = output;
  }

  /** Returns whether scans that are planned now return columns, if their types allow it. */
  static boolean isWanted() {
    try {
      return ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN
          && isSet(ENABLED)
          && ExecutorClasses.areAvailable();
    } catch (Exception e) {
      Log.leftToSpark("columns", e);
    } catch (LinkageError e) {
      Log.leftToSpark("columns", e);
    }
    return false;
  }

  private static boolean isSet(String setting) {
    return Boolean.parseBoolean(SQLConf.get().getConfString(setting, "true"));
  }

  /** Adds to a request that tasks return columns. */
  static void ask(Map request) {
    request.put("columnar", Boolean.TRUE);
    if (isSet(SHARED_MEMORY)) {
      request.put("shared_memory", Boolean.TRUE);
    }
  }

  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  public PartitionReader createReader(InputPartition partition) {
    throw new UnsupportedOperationException("the scan returns columns");
  }

  public PartitionReader createColumnarReader(InputPartition partition) {
    return new ColumnarReader(python.createReader(partition), output);
  }
}
