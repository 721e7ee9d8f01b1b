package org.lancespark;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.WriteToStream;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.catalyst.util.ResolveDefaultColumns$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Adds the columns that a write leaves out, with their defaults. Spark does it for writes by name,
 * and not for writes by path and streams.
 */
public class DefaultColumns extends Rule {
  private static final String DEFAULT = "CURRENT_DEFAULT";

  /** The option of a write whose version a step before it has read. */
  private static final String OPENED = "opened_version";

  /** Adds columns to streams. */
  public TreeNode apply(TreeNode plan) {
    return (TreeNode) ((LogicalPlan) plan).resolveOperators(new Replacement());
  }

  /**
   * Returns the columns with defaults that a write by path leaves out.
   *
   * @param overwrites whether the mode is overwrite
   */
  static StructType leftOut(Map options, StructType query, boolean overwrites) {
    return schema(asked(options, query, overwrites));
  }

  /**
   * Returns the columns of leftOut, and adds an option by which the write knows the version that
   * was read for them.
   *
   * @param constraints gets the constraints of the table, as Python describes them
   */
  static StructType leftOutOfWrite(
      Map options, StructType query, boolean overwrites, List constraints) {
    Map reply = asked(options, query, overwrites);
    if (reply.get(OPENED) != null) {
      options.put(OPENED, reply.get(OPENED));
    }
    constraints.addAll((List) reply.get("constraints"));
    return schema(reply);
  }

  private static Map asked(Map options, StructType query, boolean overwrites) {
    Map arguments = new LinkedHashMap();
    arguments.put("options", options);
    arguments.put("columns", query.fieldNames());
    arguments.put("overwrite", Boolean.valueOf(overwrites));
    return PythonCall.result("columns_left_out", arguments);
  }

  private static StructType schema(Map reply) {
    return (StructType) DataType.fromJson((String) reply.get("schema"));
  }

  /** Returns a query with the defaults of the columns of a table that it does not have. */
  static LogicalPlan added(LogicalPlan query, StructType table) {
    StructField[] fields = CharVarcharUtils.replaceCharVarcharWithStringInSchema(table).fields();
    List outputs = new ArrayList(CollectionConverters.asJava(query.output()));
    int given = outputs.size();
    for (int i = 0; i < fields.length; i++) {
      if (fields[i].metadata().contains(DEFAULT) && !has(outputs, given, fields[i].name())) {
        Option value = ResolveDefaultColumns$.MODULE$.getDefaultValueExprOrNullLit(fields[i], false);
        if (value.isDefined()) {
          outputs.add(value.get());
        }
      }
    }
    return outputs.size() == given
        ? query
        : new Project(CollectionConverters.asScala(outputs).toSeq(), query);
  }

  private static boolean has(List outputs, int given, String name) {
    boolean exactly = SQLConf.get().caseSensitiveAnalysis();
    for (int i = 0; i < given; i++) {
      String other = ((Attribute) outputs.get(i)).name();
      if (exactly ? other.equals(name) : other.equalsIgnoreCase(name)) {
        return true;
      }
    }
    return false;
  }

  static class Replacement extends StreamedQueries {
    LogicalPlan changed(LogicalPlan query, WriteToStream write) {
      // In complete mode, each batch replaces the table and its columns.
      if ("Complete".equals(write.outputMode().toString())) {
        return query;
      }
      StructType table =
          write.sink() instanceof NamedTable
              ? ((NamedTable) write.sink()).schema()
              : ((PathTable) write.sink()).leftOut(query.schema());
      return added(query, table);
    }
  }
}
