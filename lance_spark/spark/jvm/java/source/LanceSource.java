package org.lancespark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.DataFrameWriter;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The source of format("lance"), which Spark prefers to the Python source of that name. It reads
 * and writes as the Python source does, and has all save modes.
 *
 * <p>Spark refuses the modes errorifexists and ignore for tables that take batches. It calls
 * createRelation, with the mode, if the table takes none. So `df.write.save()` gets such a table in
 * all modes. createRelation starts the write again as an append or an overwrite, for which it gets
 * a table that takes batches. The Python writer makes sure that the table does not exist.
 */
public class LanceSource extends PythonSource
    implements DataSourceRegister, CreatableRelationProvider {
  /** The option of writes that create the table. */
  private static final String MUST_CREATE = "must_create";

  /** The option that has the metadata of the columns of the query, as the user made it. */
  private static final String QUERY_METADATA = "query_metadata";

  /** Options by which Spark passes createRelation the columns of partitionBy and clusterBy. */
  private static final String[] PARTITIONING = {"__partition_columns", "__clustering_columns"};

  /** The constraints of the table, if createRelation of this thread has started the write. */
  private static final ThreadLocal STARTED = new ThreadLocal();

  public String shortName() {
    return PythonCall.FORMAT;
  }

  /** Leaves the check of types to the writer. */
  public boolean supportsDataType(DataType type) {
    return true;
  }

  public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
      String name, CaseInsensitiveStringMap options, Option schema) {
    try {
      return super.getOrCreateDataSourceInPython(name, options, schema);
    } catch (Exception e) {
      throw Errors.raiseFromPython(e);
    }
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    return new PathTable(this, schema, properties, (List) STARTED.get());
  }

  public BaseRelation createRelation(
      SQLContext context, SaveMode mode, scala.collection.immutable.Map given, Dataset data) {
    Map options = new HashMap(CollectionConverters.asJava(originalCase(given)));
    boolean creates = mode == SaveMode.ErrorIfExists || mode == SaveMode.Ignore;
    refusePartitions(options);
    if (creates) {
      Map arguments = new LinkedHashMap();
      arguments.put("options", options);
      if (Boolean.TRUE.equals(PythonCall.result("path_exists", arguments).get("exists"))) {
        return existing(context, mode, options);
      }
      options.put(MUST_CREATE, "true");
    }
    if (mode == SaveMode.Overwrite) {
      options.put(Settings.OVERWRITE_MODE, Settings.overwriteMode());
    }
    List constraints = new ArrayList();
    if (!creates) {
      StructType leftOut =
          DefaultColumns.leftOutOfWrite(
              options, data.schema(), mode == SaveMode.Overwrite, constraints);
      data = leftOut.isEmpty() ? data : withDefaults(data, leftOut);
    }
    // Spark's optimizer replaces some columns by expressions, which have no metadata.
    Map metadata = metadata(data.schema());
    if (!metadata.isEmpty()) {
      options.put(QUERY_METADATA, Forms.json(metadata));
    }
    DataFrameWriter writer = data.write().format(PythonCall.FORMAT);
    writer.mode(creates ? SaveMode.Append : mode).options(options);
    STARTED.set(constraints);
    try {
      writer.save();
    } catch (Exception e) {
      if (creates && "TableExistsError".equals(Errors.classFromPython(e))) {
        // Another client created the table during this write, whose files are deleted.
        return existing(context, mode, options);
      }
      throw Errors.raiseFromPython(e);
    } finally {
      STARTED.remove();
    }
    return new Answer(context, new StructType());
  }

  private static void refusePartitions(Map options) {
    for (int i = 0; i < PARTITIONING.length; i++) {
      String columns = (String) options.get(PARTITIONING[i]);
      if (columns != null) {
        throw Errors.unchecked(
            new CaseInsensitiveStringMap(options).get("path")
                + ": Lance tables have no partitions, and the write asks for a partitioning by "
                + String.join(", ", Arrays.asList(names(columns)))
                + "; remove partitionBy and clusterBy. The option partitionBy names the columns of"
                + " partitions that an overwrite replaces");
      }
    }
  }

  private static Dataset withDefaults(Dataset data, StructType leftOut) {
    org.apache.spark.sql.classic.Dataset rows = (org.apache.spark.sql.classic.Dataset) data;
    LogicalPlan query = rows.queryExecution().analyzed();
    return Dataset$.MODULE$.ofRows(rows.sparkSession(), DefaultColumns.added(query, leftOut));
  }

  private static BaseRelation existing(SQLContext context, SaveMode mode, Map options) {
    if (mode == SaveMode.ErrorIfExists) {
      Errors.raisePathExists((String) new CaseInsensitiveStringMap(options).get("path"));
    }
    return new Answer(context, new StructType());
  }

  /** Returns the metadata, as a text, of each column that has some. */
  private static Map metadata(StructType schema) {
    Map all = new LinkedHashMap();
    StructField[] fields = schema.fields();
    for (int i = 0; i < fields.length; i++) {
      if (!Metadata.empty().equals(fields[i].metadata())) {
        all.put(fields[i].name(), fields[i].metadata().json());
      }
    }
    return all;
  }

  private static scala.collection.immutable.Map originalCase(
      scala.collection.immutable.Map options) {
    return options instanceof CaseInsensitiveMap
        ? ((CaseInsensitiveMap) options).originalMap()
        : options;
  }

  private static String[] names(String json) {
    try {
      return (String[]) new ObjectMapper().readValue(json, String[].class);
    } catch (java.io.IOException e) {
      throw new IllegalStateException(e);
    }
  }

  public String toString() {
    return PythonCall.FORMAT;
  }
}
