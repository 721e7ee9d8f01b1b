package org.lancespark;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;

/** A procedure of a catalog. Python describes it and runs it. */
public class LanceProcedure implements UnboundProcedure {
  private final LanceCatalog catalog;
  private final Map description;

  LanceProcedure(LanceCatalog catalog, Map description) {
    this.catalog = catalog;
    this.description = description;
  }

  public String name() {
    return (String) description.get("name");
  }

  public String description() {
    return (String) description.get("comment");
  }

  public BoundProcedure bind(StructType input) {
    return new Bound(this);
  }

  ProcedureParameter[] parameters() {
    List described = (List) description.get("parameters");
    ProcedureParameter[] parameters = new ProcedureParameter[described.size()];
    for (int i = 0; i < parameters.length; i++) {
      parameters[i] = new Parameter((Map) described.get(i));
    }
    return parameters;
  }

  /** Runs the procedure. Null stands for an argument that the statement does not have. */
  Iterator call(InternalRow input) {
    Map values = new LinkedHashMap();
    ProcedureParameter[] parameters = parameters();
    for (int i = 0; i < parameters.length; i++) {
      Object value = input.get(i, parameters[i].dataType());
      values.put(parameters[i].name(), Values.toJson(value, parameters[i].dataType()));
    }
    boolean opens = Boolean.TRUE.equals(description.get("opens"));
    Identifier entry = opens ? catalog.entry((String) values.get("table")) : null;
    if (entry != null) {
      values.put("table", "`" + catalog.path(entry).name().replace("`", "``") + "`");
    }
    Map arguments = catalog.ofProcedure(name());
    arguments.put("values", values);
    // The table is a path here: the metastore has the name.
    arguments.put("session_name", entry == null ? null : entry.toString());
    arguments.put("case_sensitive", Boolean.valueOf(SQLConf.get().caseSensitiveAnalysis()));
    boolean hasJobs = Boolean.TRUE.equals(description.get("has_jobs"));
    Map reply =
        hasJobs
            ? SessionCallback.result("call_procedure", arguments)
            : PythonCall.result("call_procedure", arguments);
    List table = (List) reply.get("table");
    if (table != null) {
      catalog.refresh(entry, table);
    }
    StructType schema = StructType.fromDDL((String) reply.get("schema"));
    List rows = (List) reply.get("rows");
    InternalRow[] converted = new InternalRow[rows.size()];
    for (int i = 0; i < converted.length; i++) {
      converted[i] = (InternalRow) Values.toSpark(rows.get(i), schema);
    }
    List results = new ArrayList();
    results.add(new Result(schema, converted));
    return results.iterator();
  }

  /**
   * The procedure after Spark has resolved all arguments of a call. Spark takes each procedure of
   * this interface to be bound: the procedure itself must not have it.
   */
  public static class Bound implements BoundProcedure {
    private final LanceProcedure procedure;

    Bound(LanceProcedure procedure) {
      this.procedure = procedure;
    }

    public String name() {
      return procedure.name();
    }

    public String description() {
      return procedure.description();
    }

    public boolean isDeterministic() {
      return false;
    }

    public ProcedureParameter[] parameters() {
      return procedure.parameters();
    }

    public Iterator call(InternalRow input) {
      return procedure.call(input);
    }
  }

  /** The rows that a procedure returns. */
  public static class Result implements LocalScan {
    private final StructType schema;
    private final InternalRow[] rows;

    Result(StructType schema, InternalRow[] rows) {
      this.schema = schema;
      this.rows = rows;
    }

    public StructType readSchema() {
      return schema;
    }

    public InternalRow[] rows() {
      return rows;
    }
  }
}
