package org.lancespark;

import java.io.File;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

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
    SparkContext context = SharedSteps.active();
    PythonFunction shared = SharedSteps.function();
    Map variables = new HashMap(shared.envVars());
    List archives = Interpreters.archives(context);
    String path = Interpreters.path(archives);
    String startup = System.getProperty(Constants.STARTUP);
    // Last, so that a module of the user comes first. Spark's own folders come before all.
    variables.put(
        Interpreters.PATH, startup == null ? path : path + File.pathSeparator + startup);
    SparkField[] fields = {SparkField.ENV_VARS, SparkField.PYTHON_INCLUDES};
    Object[] values = {variables, archives};
    try {
      return new SharedSteps((PythonFunction) SparkShims.copy(shared, fields, values));
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }
}
