package org.lancespark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.DefaultValue;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.types.DataType;

/** A parameter of a procedure. The compiler cannot call ProcedureParameter.in. */
public class Parameter implements ProcedureParameter {
  private final Map description;
  private final DataType type;

  Parameter(Map description) {
    this.description = description;
    this.type = DataType.fromDDL((String) description.get("type"));
  }

  public ProcedureParameter.Mode mode() {
    return ProcedureParameter.Mode.IN;
  }

  public String name() {
    return (String) description.get("name");
  }

  public DataType dataType() {
    return type;
  }

  /** Returns null for a parameter that a statement must have; for most others, Python has it. */
  public DefaultValue defaultValue() {
    return Boolean.TRUE.equals(description.get("required"))
        ? null
        : new DefaultValue((String) description.get("default"));
  }

  public String comment() {
    return (String) description.get("comment");
  }
}
