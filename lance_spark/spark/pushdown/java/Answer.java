package org.lancespark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.Iterator;

/**
 * What the Python reader answered to the request of a scan, in one round trip.
 *
 * <p>The request travels as metadata of one more field behind the wanted ones, which the reader takes off. The first
 * partition that comes back is none: its pickled text tells rows and bytes, -1 if unknown, the version, and of how many
 * fragments how many are read. If the rows are few and were quickly read, they follow as a stream of Arrow's, of so many bytes as the text tells.
 */
final class Answer {
  static final String FIELD = "__lance_request";
  private static final Pattern TEXT =
      Pattern.compile("lance-plan rows=(-?\\d+) bytes=(-?\\d+)(?: at=([^ ;]+))? fragments=(\\d+)/(\\d+)(?: stream=(\\d+))?;");

  final InputPartition[] partitions;
  final PartitionReaderFactory factory;
  final long rows;
  final long bytes;

  /** What the partitions would give, or null if that is for tasks to read. */
  final InternalRow[] found;

  /** Fragments that the partitions read, and those of the table. */
  final long scanned;

  final long fragments;

  private final String at;

  private Answer(
      InputPartition[] partitions,
      PartitionReaderFactory factory,
      long rows,
      long bytes,
      String at,
      long scanned,
      long fragments,
      InternalRow[] found) {
    this.partitions = partitions;
    this.factory = factory;
    this.rows = rows;
    this.bytes = bytes;
    this.at = at;
    this.found = found;
    this.scanned = scanned;
    this.fragments = fragments;
  }

  /** Asks for the version that other scans of the query read, if there are any; partitions give other columns if some come as bytes. */
  static Answer to(
      Map request, RequestTable table, CaseInsensitiveStringMap options, StructType output, StructType given) {
    Snapshot.Version version = table.snapshot.of(options);
    if (version.at == null) {
      synchronized (version) {
        if (version.at == null) {
          Answer answer = ask(request, table, options, output, given);
          version.at = answer.at;
          return answer;
        }
      }
    }
    Map bound = new LinkedHashMap(request);
    bound.put("at", version.at);
    return ask(bound, table, options, output, given);
  }

  private static Answer ask(
      Map request, RequestTable table, CaseInsensitiveStringMap options, StructType output, StructType given) {
    Map told = new LinkedHashMap(request);
    told.put("parallelism", Integer.valueOf(SparkContext.getOrCreate().defaultParallelism()));
    if (!Boolean.parseBoolean(SQLConf.get().getConfString(PushDownRule.LOCAL, "true"))) {
      told.put("tasks", Boolean.TRUE);
    }
    if (options.containsKey("filter")) {
      told.put("settings", Settings.ofSession());
    }
    String json = Forms.json(told);
    MetadataBuilder metadata = new MetadataBuilder();
    if (table.schema().length() > 0) {
      // A table of the catalog says there where it is, and the column may be one that is not wanted.
      metadata.withMetadata(table.schema().fields()[0].metadata());
    }
    metadata.putString("request", json);
    StructType asked = output.add(new StructField(FIELD, DataTypes.NullType, true, metadata.build()));
    PythonDataSourceCreationResult created =
        table.source.getOrCreateDataSourceInPython(table.name(), options, Option.apply(table.schema()));
    PythonDataSourceReadInfo info = table.source.source().createReadInfoInPython(created, asked, false);
    Iterator pickles = info.partitions().iterator();
    Matcher text = TEXT.matcher("");
    byte[] first = new byte[0];
    if (pickles.hasNext()) {
      first = (byte[]) pickles.next();
      text.reset(new String(first, StandardCharsets.ISO_8859_1));
    }
    if (!text.find()) {
      throw new IllegalStateException(
          "The Python source \"" + table.name() + "\" does not answer requests: install the lance-spark that the jar of the"
              + " rule was made by, or set " + PushDownRule.ENABLED + " to false");
    }
    List partitions = new ArrayList();
    while (pickles.hasNext()) {
      partitions.add(new PythonInputPartition(partitions.size(), (byte[]) pickles.next()));
    }
    return new Answer(
        (InputPartition[]) partitions.toArray(new InputPartition[partitions.size()]),
        Versions.readerFactory(table, options, info, given),
        Long.parseLong(text.group(1)),
        Long.parseLong(text.group(2)),
        text.group(3),
        Long.parseLong(text.group(4)),
        Long.parseLong(text.group(5)),
        text.group(6) == null ? null : Rows.of(first, text.end(), Integer.parseInt(text.group(6)), output));
  }
}
