package org.lancespark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
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
 * <p>The call travels as metadata of the only field of a read schema. The reply takes the place of
 * the first partition: its pickle holds the text "lance-reply N;" and N bytes of JSON. An error of
 * Python comes back as an object "error" with the kind and the message.
 */
final class PythonCall {
  static final String FORMAT = "lance";
  private static final String FIELD = "__lance_call";
  private static final Pattern REPLY = Pattern.compile("lance-reply (\\d+);");
  private static final ObjectMapper JSON = new ObjectMapper();

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
    byte[] first = pickles.hasNext() ? (byte[]) pickles.next() : new byte[0];
    Matcher text = REPLY.matcher(new String(first, StandardCharsets.ISO_8859_1));
    if (!text.find()) {
      throw new IllegalStateException(
          "The Python package lance_spark does not answer calls of the catalog: install the release"
              + " that wrote the jar in the Python of Spark's workers");
    }
    int length = Integer.parseInt(text.group(1));
    try {
      return (Map)
          JSON.readValue(new String(first, text.end(), length, StandardCharsets.UTF_8), Map.class);
    } catch (java.io.IOException e) {
      throw new IllegalStateException(e);
    }
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
