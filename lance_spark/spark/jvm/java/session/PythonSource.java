package org.lancespark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Product;

/**
 * Spark's source of a Python data source, of which each use has environment variables of its own.
 *
 * <p>All sources of Spark share one map of variables, to which each stream adds some without a lock
 * when it starts. Streams that start at the same time can leave the map with a wrong size, and then
 * no task that holds it can be serialized until the driver ends ("Illegal size 5 of collection").
 * Two streams of one DataFrame have the same source: so each call returns another map.
 */
public class PythonSource extends PythonDataSourceV2 {
  public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
      String name, CaseInsensitiveStringMap options, Option schema) {
    Map all = TimeZones.added(options.asCaseSensitiveMap());
    return super.getOrCreateDataSourceInPython(name, new CaseInsensitiveStringMap(all), schema);
  }

  public UserDefinedPythonDataSource source() {
    UserDefinedPythonDataSource shared = super.source();
    Map variables = (Map) Versions.field((Product) shared.dataSourceCls(), "envVars");
    try {
      return Versions.withFunctionOf(shared, "envVars", new HashMap(variables));
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }
}
