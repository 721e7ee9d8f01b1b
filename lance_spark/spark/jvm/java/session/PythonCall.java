package org.lancespark;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.Iterator;

/**
 * Calls functions of lance_spark in the Python process that plans reads of Python data sources.
 *
 * <p>The call travels as metadata of the only field of a read schema. A reply takes the place of the
 * first partition. An error of Python comes back as an object "error" with the kind and the message.
 */
final class PythonCall {
  static final String FORMAT = "lance";
  private static final String FIELD = "__lance_call";

  /** The data source without options. Each use of it saves a Python process that makes another. */
  private static volatile PythonDataSourceCreationResult created;

  private PythonCall() {}

  /** Calls a function. Returns its result, or a map with the key "error". */
  static Map reply(String function, Map arguments) {
    Map call = new LinkedHashMap();
    call.put("function", function);
    call.put("arguments", arguments);
    MetadataBuilder metadata = new MetadataBuilder();
    metadata.putString("call", Forms.json(call));
    StructType schema =
        new StructType().add(new StructField(FIELD, DataTypes.NullType, true, metadata.build()));
    PythonDataSourceReadInfo info = readInfo(source(), schema);
    Iterator pickles = info.partitions().iterator();
    Reply reply = pickles.hasNext() ? Reply.in((byte[]) pickles.next(), "call") : null;
    if (reply == null) {
      throw new IllegalStateException(
          "The Python package lance_spark does not answer calls of the catalog: install the release"
              + " that wrote the jar in the Python of Spark's workers");
    }
    return (Map) reply.header.get("result");
  }

  /** Calls a function, and raises the error of its reply as an AnalysisException. */
  static Map result(String function, Map arguments) {
    Map reply = reply(function, arguments);
    if (reply.containsKey("error")) {
      Errors.raise((Map) reply.get("error"), null, null);
    }
    return reply;
  }

  /** Plans a read whose options, if it has any, are metadata of the schema. */
  static PythonDataSourceReadInfo readInfo(PythonDataSourceV2 source, StructType schema) {
    if (created == null) {
      CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(new HashMap());
      StructType any = new StructType().add(FIELD, DataTypes.NullType);
      created = source.getOrCreateDataSourceInPython(FORMAT, options, Option.apply(any));
    }
    return source.source().createReadInfoInPython(created, schema, false);
  }

  static PythonDataSourceV2 source() {
    PythonDataSourceV2 source = new PythonSource();
    source.setShortName(FORMAT);
    return source;
  }
}
