package org.lancespark;

import java.io.IOException;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;
import scala.runtime.BoxedUnit;

/** Makes writers that send batches in place of rows to Python. Spark sends it to executors. */
public class ColumnarWriterFactory implements DataWriterFactory, StreamingDataWriterFactory {
  private static final long serialVersionUID = 1L;

  /** The column that Python knows batches by. */
  private static final String BATCH = "__lance_batch";

  private final DataWriterFactory python;
  private final StructType schema;

  private ColumnarWriterFactory(DataWriterFactory python, StructType schema) {
    this.python = python;
    this.schema = schema;
  }

  /** Returns a factory whose writers send batches, or the same factory if they cannot. */
  static DataWriterFactory of(DataWriterFactory python) {
    try {
      StructType schema = (StructType) SparkField.INPUT_SCHEMA.of(python);
      if (ColumnarFactory.isWanted() && BatchBuilder.builders(schema) != null) {
        StructType sent = new StructType().add(BATCH, DataTypes.BinaryType, false);
        Object factory =
            SparkShims.copy(python, new SparkField[] {SparkField.INPUT_SCHEMA}, new Object[] {sent});
        return new ColumnarWriterFactory((DataWriterFactory) factory, schema);
      }
    } catch (Exception e) {
      Log.leftToSpark("columns of writes", e);
    } catch (LinkageError e) {
      Log.leftToSpark("columns of writes", e);
    }
    return python;
  }

  /** Returns the same for a batch of a stream: Spark's factory of a stream is one of batches. */
  static StreamingDataWriterFactory ofStream(StreamingDataWriterFactory python) {
    return python instanceof DataWriterFactory
        ? (StreamingDataWriterFactory) of((DataWriterFactory) python)
        : python;
  }

  public DataWriter createWriter(int partition, long task, long batch) {
    return createWriter(partition, task);
  }

  public DataWriter createWriter(int partition, long task) {
    return new ColumnarWriter(python.createWriter(partition, task), schema);
  }

  static final class ColumnarWriter implements DataWriter {
    private final DataWriter python;
    private final StructType schema;

    ColumnarWriter(DataWriter python, StructType schema) {
      this.python = python;
      this.schema = schema;
    }

    /** Sends each batch on its own: Spark would collect thousands of them. */
    public void writeAll(Iterator rows) throws IOException {
      // That of a task cannot be changed, nor cloned.
      SQLConf ofTask = SQLConf.get();
      SQLConf conf = new SQLConf();
      Iterator settings = CollectionConverters.asJava(ofTask.getAllConfs()).entrySet().iterator();
      while (settings.hasNext()) {
        Map.Entry setting = (Map.Entry) settings.next();
        conf.setConfString((String) setting.getKey(), (String) setting.getValue());
      }
      conf.setConfString("spark.sql.execution.arrow.maxRecordsPerBatch", "1");
      Iterator batches = new OfTask(new BatchBuilder(rows, schema), ofTask);
      SQLConf$.MODULE$.withExistingConf(conf, new Sending(python, batches));
    }

    public void write(Object row) throws IOException {
      python.write(row);
    }

    public WriterCommitMessage commit() throws IOException {
      return python.commit();
    }

    public void abort() throws IOException {
      python.abort();
    }

    public void close() throws IOException {
      python.close();
    }

    public CustomTaskMetric[] currentMetricsValues() {
      return python.currentMetricsValues();
    }
  }

  static final class Sending extends AbstractFunction0 {
    private final DataWriter python;
    private final Iterator batches;

    Sending(DataWriter python, Iterator batches) {
      this.python = python;
      this.batches = batches;
    }

    public Object apply() {
      try {
        python.writeAll(batches);
      } catch (IOException e) {
        throw Errors.rethrow(e);
      }
      return BoxedUnit.UNIT;
    }
  }

  /**
   * Batches whose rows are computed with the settings of the task: functions in Python that compute
   * them get batches, too.
   */
  static final class OfTask implements Iterator {
    private final Iterator batches;
    private final SQLConf conf;

    OfTask(Iterator batches, SQLConf conf) {
      this.batches = batches;
      this.conf = conf;
    }

    public boolean hasNext() {
      Object hasNext = SQLConf$.MODULE$.withExistingConf(conf, new Call(batches, false));
      return ((Boolean) hasNext).booleanValue();
    }

    public Object next() {
      return SQLConf$.MODULE$.withExistingConf(conf, new Call(batches, true));
    }

    public void remove() {
      throw new UnsupportedOperationException();
    }
  }

  static final class Call extends AbstractFunction0 {
    private final Iterator batches;
    private final boolean returnsNext;

    Call(Iterator batches, boolean returnsNext) {
      this.batches = batches;
      this.returnsNext = returnsNext;
    }

    public Object apply() {
      return returnsNext ? batches.next() : (Object) Boolean.valueOf(batches.hasNext());
    }
  }
}
