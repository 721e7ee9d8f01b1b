package org.lancespark;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.AcceptsLatestSeenOffset;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/** Spark's own stream of a Python source, whose tasks return columns in place of rows. */
public class ColumnarStream implements MicroBatchStream, AcceptsLatestSeenOffset {
  private final MicroBatchStream python;
  private final PythonDataSourceV2 source;
  private final CaseInsensitiveStringMap options;
  private final StructType schema;
  private PartitionReaderFactory factory;

  private ColumnarStream(
      MicroBatchStream python,
      PythonDataSourceV2 source,
      CaseInsensitiveStringMap options,
      StructType schema) {
    this.python = python;
    this.source = source;
    this.options = options;
    this.schema = schema;
  }

  /** Returns a stream that is limited as Spark's own one: since 4.2, Spark limits batches. */
  static MicroBatchStream over(
      MicroBatchStream python,
      PythonDataSourceV2 source,
      CaseInsensitiveStringMap options,
      StructType schema) {
    return python instanceof SupportsTriggerAvailableNow
        ? new LimitedStream((SupportsTriggerAvailableNow) python, source, options, schema)
        : python instanceof SupportsAdmissionControl
            ? python
            : new ColumnarStream(python, source, options, schema);
  }

  /** Returns the factory of columns, or that of rows if the stream has none: once for a stream. */
  public synchronized PartitionReaderFactory createReaderFactory() {
    if (factory == null) {
      factory = python.createReaderFactory();
      try {
        if (PushDownRule.isEnabled() && ColumnarFactory.isWanted()) {
          factory = columns(factory);
        }
      } catch (Exception e) {
        Log.leftToSpark("columns of streams", e);
      } catch (LinkageError e) {
        Log.leftToSpark("columns of streams", e);
      }
    }
    return factory;
  }

  private PartitionReaderFactory columns(PartitionReaderFactory rows)
      throws ReflectiveOperationException {
    Map asked = new LinkedHashMap();
    ColumnarFactory.ask(asked);
    MetadataBuilder request = new MetadataBuilder().putString("request", Forms.json(asked));
    StructType requested =
        schema.add(new StructField(PlanReply.FIELD, DataTypes.NullType, true, request.build()));
    PythonDataSourceReadInfo info =
        source
            .source()
            .createReadInfoInPython(
                source.getOrCreateDataSourceInPython(
                    PythonCall.FORMAT, options, Option.apply(schema)),
                requested,
                true);
    Reply reply = Reply.in(info.func(), "stream");
    if (reply == null || !PlanReply.COLUMNAR.equals(reply.header.get("columnar"))) {
      return rows;
    }
    return new ColumnarFactory(
        SparkRelease.streamFactory(rows, info.func(), ColumnarReader.SENT), schema);
  }

  public Offset initialOffset() {
    return python.initialOffset();
  }

  public Offset latestOffset() {
    return python.latestOffset();
  }

  public Offset deserializeOffset(String json) {
    return python.deserializeOffset(json);
  }

  public void setLatestSeenOffset(Offset offset) {
    if (python instanceof AcceptsLatestSeenOffset) {
      ((AcceptsLatestSeenOffset) python).setLatestSeenOffset(offset);
    }
  }

  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return python.planInputPartitions(start, end);
  }

  public void commit(Offset end) {
    python.commit(end);
  }

  public void stop() {
    python.stop();
  }

  public String toString() {
    return python.toString();
  }

  /** A stream whose batches have limits. */
  public static class LimitedStream extends ColumnarStream implements SupportsTriggerAvailableNow {
    private final SupportsTriggerAvailableNow limited;

    LimitedStream(
        SupportsTriggerAvailableNow python,
        PythonDataSourceV2 source,
        CaseInsensitiveStringMap options,
        StructType schema) {
      super((MicroBatchStream) python, source, options, schema);
      this.limited = python;
    }

    public ReadLimit getDefaultReadLimit() {
      return limited.getDefaultReadLimit();
    }

    public Offset latestOffset(Offset start, ReadLimit limit) {
      return limited.latestOffset(start, limit);
    }

    public Offset reportLatestOffset() {
      return limited.reportLatestOffset();
    }

    public void prepareForTriggerAvailableNow() {
      limited.prepareForTriggerAvailableNow();
    }
  }
}
