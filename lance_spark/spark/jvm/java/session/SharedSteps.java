package org.lancespark;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import net.razorvine.pickle.Pickler;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.SimplePythonFunction;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap$;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceWriteInfo;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource$;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSourceCommitRunner;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSourceReadRunner;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSourceRunner;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSourceWriteRunner;
import org.apache.spark.sql.execution.python.PythonPlannerRunner;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A Python data source, all of whose steps of planning run in the same Python process.
 *
 * <p>Spark runs a daemon for each step, such as the creation of the source, the plan of a write and
 * its commit, and the first of each waits for the start of its daemon. Here the daemon is one
 * for all. Its module `pyspark_lance.worker` runs Spark's own module of the step, whose name comes
 * before the version of Python, which is what Spark sends first.
 */
public class SharedSteps extends UserDefinedPythonDataSource {
  private static final long serialVersionUID = 1L;
  private static final String WORKER = "pyspark_lance.worker";

  /** Pickle of the class of the data source: its module and its name. */
  private static final String CLASS = "clance_spark.spark.datasource\nLanceDataSource\n.";

  /** The function of the class, and the application that it was made for. */
  private static PythonFunction function;

  private static String application;

  SharedSteps(PythonFunction function) {
    super(function);
  }

  /**
   * Returns the function of the class, for the driver. Spark would start a daemon that looks for the
   * data sources of all packages, and pickles this class.
   */
  static synchronized PythonFunction function() {
    SparkContext context = active();
    String current = context.applicationId();
    if (!current.equals(application)) {
      String program = Interpreters.ofDriver(context);
      String path = Interpreters.path(Interpreters.archives(context));
      try {
        function =
            new SimplePythonFunction(
                CLASS.getBytes("US-ASCII"),
                new HashMap(),
                Collections.emptyList(),
                program,
                Interpreters.version(program, path),
                Collections.emptyList(),
                null);
      } catch (java.io.UnsupportedEncodingException e) {
        throw new IllegalStateException(e);
      }
      application = current;
    }
    return function;
  }

  private static boolean usesDaemon() {
    return active().getConf().getBoolean("spark.python.use.daemon", true)
        && !System.getProperty("os.name").startsWith("Windows");
  }

  /** Returns the context, and makes none, as Spark's method for it would. */
  static SparkContext active() {
    Option context = SparkContext$.MODULE$.getActive();
    if (context.isEmpty()) {
      throw new IllegalStateException("the Spark context has stopped");
    }
    return (SparkContext) context.get();
  }

  public UserDefinedPythonDataSource copy(PythonFunction function) {
    return new SharedSteps(function);
  }

  /**
   * Executors get Spark's own class: they plan nothing, and may not have this one. Its tasks have a
   * program of their own.
   */
  protected Object writeReplace() {
    Object[] program = {Interpreters.ofTasks(active())};
    SparkField[] field = {SparkField.PYTHON_EXEC};
    try {
      return new UserDefinedPythonDataSource(
          (PythonFunction) SparkShims.copy(dataSourceCls(), field, program));
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  public PythonDataSourceCreationResult createDataSourceInPython(
      String name, CaseInsensitiveStringMap options, Option schema) {
    PythonFunction source = dataSourceCls();
    CaseInsensitiveMap all = CaseInsensitiveMap$.MODULE$.apply(map(options));
    PythonPlannerRunner step = new UserDefinedPythonDataSourceRunner(source, name, schema, all);
    return (PythonDataSourceCreationResult) run(source, step);
  }

  public PythonDataSourceReadInfo createReadInfoInPython(
      PythonDataSourceCreationResult created, StructType output, boolean isStreaming) {
    PythonFunction source = createPythonFunction(created.dataSource());
    StructType input = UserDefinedPythonDataSource$.MODULE$.readInputSchema();
    return (PythonDataSourceReadInfo)
        run(
            source,
            new UserDefinedPythonDataSourceReadRunner(source, input, output, isStreaming));
  }

  public PythonDataSourceWriteInfo createWriteInfoInPython(
      String provider,
      StructType input,
      CaseInsensitiveStringMap options,
      boolean overwrite,
      boolean isStreaming) {
    PythonFunction source = dataSourceCls();
    return (PythonDataSourceWriteInfo)
        run(
            source,
            new UserDefinedPythonDataSourceWriteRunner(
                source, provider, input, map(options), overwrite, isStreaming));
  }

  public void commitWriteInPython(byte[] writer, WriterCommitMessage[] messages, boolean abort) {
    PythonFunction source = dataSourceCls();
    run(source, new UserDefinedPythonDataSourceCommitRunner(source, writer, messages, abort));
  }

  private static scala.collection.immutable.Map map(CaseInsensitiveStringMap options) {
    Map all = options.asCaseSensitiveMap();
    return scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(all));
  }

  private static Object run(PythonFunction source, PythonPlannerRunner step) {
    if (!usesDaemon()) {
      // Each step is a process of its own anyway.
      return step.runInPython(false);
    }
    String module = step.workerModule();
    String name = module.substring(module.lastIndexOf('.') + 1);
    Object[] version = {name + " " + source.pythonVer()};
    try {
      Object named = SparkShims.copy(source, new SparkField[] {SparkField.PYTHON_VER}, version);
      return new Step((PythonFunction) named, step).runInPython(true);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** A step of Spark in the process of this package. */
  static final class Step extends PythonPlannerRunner {
    private final PythonPlannerRunner step;

    Step(PythonFunction named, PythonPlannerRunner step) {
      super(named);
      this.step = step;
    }

    public String workerModule() {
      return WORKER;
    }

    /* since 4.2
    public scala.collection.immutable.Map runnerConf() {
      return step.runnerConf();
    }
    since 4.2 */

    public void writeToPython(DataOutputStream out, Pickler pickler) {
      step.writeToPython(out, pickler);
    }

    public Object receiveFromPython(DataInputStream in) {
      return step.receiveFromPython(in);
    }
  }
}
