package org.lancespark;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.JobArtifactSet$;
import org.apache.spark.JobArtifactState;
import org.apache.spark.SparkBuildInfo;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.AppendData$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.storage.StorageLevel;
import org.apache.spark.util.AccumulatorV2;
import scala.Option;
import scala.Product;

/** Differences between the versions of Spark. */
final class Versions {
  private Versions() {}

  static String spark() {
    return SparkBuildInfo.spark_version();
  }

  static boolean isKnown() {
    return spark().matches("4\\.[0-3]\\..*");
  }

  private static boolean isFirst() {
    return spark().startsWith("4.0.");
  }

  /** Returns whether filters come as expressions. Spark 4.0 passes predicates, which lack LIKE. */
  static boolean passesExpressions() {
    return !isFirst();
  }

  /** Returns whether Spark refuses an INSERT into a table of ours that leaves columns out. */
  static boolean leavesColumnsOut() {
    return isFirst();
  }

  /** Returns whether Spark pads the columns of a table before it plans a DELETE from it. */
  static boolean padsBeforeDeletes() {
    return isFirst();
  }

  /** Returns whether all references of a statement to a table get the options of the first. */
  static boolean sharesOptions() {
    return spark().matches("4\\.[0-2]\\..*");
  }

  /** Runs the rules of the analyzer over a part of a statement, as Spark does for subqueries. */
  static LogicalPlan analyzed(SparkSession session, LogicalPlan plan)
      throws InvocationTargetException {
    Object analyzer = session.sessionState().analyzer();
    Method[] methods = analyzer.getClass().getMethods();
    for (int i = 0; i < methods.length; i++) {
      // Scala puts the name of the class before names of private methods.
      if (methods[i].getName().endsWith("executeSameContext")) {
        try {
          return (LogicalPlan) methods[i].invoke(analyzer, new Object[] {plan});
        } catch (IllegalAccessException e) {
          throw new IllegalStateException(e);
        }
      }
    }
    return plan;
  }

  /** Returns false for Spark 4.0, which takes a batch without columns to have no rows. */
  static boolean takesBatchesWithoutColumns() {
    return !isFirst();
  }

  /** Returns whether functions of a session have other names than those of extensions. */
  static boolean qualifiesFunctions() {
    return spark().matches("4\\.[23]\\..*");
  }

  /** Returns whether joins by the keys of partitions have the right rows with all settings. */
  static boolean keepsRowsOfKeys() {
    return spark().startsWith("4.3.");
  }

  /** Returns whether Spark has joins with NEAREST BY. */
  static boolean joinsNearest() {
    return qualifiesFunctions();
  }

  /** Adds the capability of tables to get new columns by a statement, which Spark 4.0 lacks. */
  static void addSchemaEvolution(Set capabilities) {
    if (!isFirst()) {
      capabilities.add(TableCapability.valueOf("AUTOMATIC_SCHEMA_EVOLUTION"));
    }
  }

  /** Returns the text of an expression as Spark names columns; 4.1 and later have another method. */
  static String pretty(Expression expression) {
    Object owner = org.apache.spark.sql.catalyst.util.package$.MODULE$;
    Method[] methods = owner.getClass().getMethods();
    for (int i = 0; i < methods.length; i++) {
      if (methods[i].getName().equals("toPrettySQL")) {
        boolean isOnly = methods[i].getParameterTypes().length == 1;
        Object[] arguments =
            isOnly ? new Object[] {expression} : new Object[] {expression, Boolean.FALSE};
        try {
          return (String) methods[i].invoke(owner, arguments);
        } catch (ReflectiveOperationException e) {
          throw new IllegalStateException(e);
        }
      }
    }
    return expression.sql();
  }

  /** Returns a table of a catalog. Spark 4.2 and later ask it for the changes that it supports. */
  static NamedTable namedTable(LanceCatalog catalog, Identifier identifier, Map reply) {
    try {
      Class type = Class.forName("org.lancespark.EvolvingTable");
      return (NamedTable)
          type.getConstructors()[0].newInstance(new Object[] {catalog, identifier, reply});
    } catch (ClassNotFoundException e) {
      // The sources were compiled by a version without the interface.
    } catch (LinkageError e) {
      // The jar is from a later version than this one.
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
    return new NamedTable(catalog, identifier, reply);
  }

  /** Returns the relation over another table. */
  static Object relationOver(DataSourceV2Relation relation, Table table)
      throws ReflectiveOperationException {
    return relationOver(relation, table, relation.options());
  }

  /** Returns the relation over another table, with other options. */
  static Object relationOver(
      DataSourceV2Relation relation, Table table, CaseInsensitiveStringMap options)
      throws ReflectiveOperationException {
    Object copy =
        copy(relation, new String[] {"table", "options"}, new Object[] {table, options});
    ((DataSourceV2Relation) copy).copyTagsFrom(relation);
    return copy;
  }

  /**
   * Returns a copy of a case class with other values of some fields. Its copy() differs by version.
   */
  static Object copy(Product original, String[] names, Object[] values)
      throws ReflectiveOperationException {
    Object[] arguments = new Object[original.productArity()];
    int replaced = 0;
    for (int i = 0; i < arguments.length; i++) {
      arguments[i] = original.productElement(i);
      for (int n = 0; n < names.length; n++) {
        if (names[n].equals(original.productElementName(i))) {
          arguments[i] = values[n];
          replaced++;
        }
      }
    }
    if (replaced != names.length) {
      throw new NoSuchMethodException(original.getClass().getName() + " without " + names[0]);
    }
    return method(original.getClass(), "copy").invoke(original, arguments);
  }

  /**
   * Returns Spark's own factory of readers, whose tasks add values to an accumulator.
   *
   * <p>Since 4.1 a data source that has a plan makes the factory, whose constructor takes more
   * arguments in each version. 4.0 has the constructor only.
   */
  static PartitionReaderFactory readerFactory(
      RequestTable table,
      CaseInsensitiveStringMap options,
      PythonDataSourceReadInfo info,
      StructType output,
      AccumulatorV2 accumulator) {
    try {
      PythonDataSourceV2 source = new CountedSource(table.source, accumulator);
      if (isFirst()) {
        Option artifacts = JobArtifactSet$.MODULE$.getCurrentJobArtifactState();
        Option uuid =
            artifacts.isEmpty()
                ? artifacts
                : Option.apply(((JobArtifactState) artifacts.get()).uuid());
        return (PartitionReaderFactory)
            PythonPartitionReaderFactory.class
                .getConstructors()[0]
                .newInstance(new Object[] {source.source(), info.func(), output, uuid});
      }
      source.setShortName(table.name());
      method(PythonDataSourceV2.class, "setReadInfo").invoke(source, new Object[] {info});
      Table planned = source.getTable(output, new Transform[0], options);
      return ((SupportsRead) planned)
          .newScanBuilder(options)
          .build()
          .toBatch()
          .createReaderFactory();
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(
          "push-down does not work in Spark "
              + spark()
              + ": set "
              + PushDownRule.ENABLED
              + " to false",
          e);
    }
  }

  /**
   * Returns a copy of Spark's own factory of readers of a stream, which reads other columns by
   * another function. Since 4.1 its constructor takes one more argument.
   */
  static PartitionReaderFactory streamFactory(
      PartitionReaderFactory original, byte[] function, StructType output)
      throws ReflectiveOperationException {
    Constructor make = original.getClass().getConstructors()[0];
    List arguments = new ArrayList();
    Field[] fields = original.getClass().getDeclaredFields();
    for (int i = 0; i < fields.length; i++) {
      if (!Modifier.isStatic(fields[i].getModifiers())
          && !Modifier.isTransient(fields[i].getModifiers())) {
        fields[i].setAccessible(true);
        Object value = fields[i].get(original);
        arguments.add(
            value instanceof byte[] ? function : value instanceof StructType ? output : value);
      }
    }
    return (PartitionReaderFactory) make.newInstance(arguments.toArray());
  }

  /** Returns a copy of a source whose Python function has another value of a field. */
  static UserDefinedPythonDataSource withFunctionOf(
      UserDefinedPythonDataSource original, String field, Object value)
      throws ReflectiveOperationException {
    Object function =
        copy((Product) original.dataSourceCls(), new String[] {field}, new Object[] {value});
    return original.copy((PythonFunction) function);
  }

  /** A Python source whose tasks add values to an accumulator. */
  static class CountedSource extends PythonDataSourceV2 {
    private final UserDefinedPythonDataSource counted;

    CountedSource(PythonDataSourceV2 source, AccumulatorV2 accumulator)
        throws ReflectiveOperationException {
      counted = withFunctionOf(source.source(), "accumulator", accumulator);
    }

    public UserDefinedPythonDataSource source() {
      return counted;
    }
  }

  /** Returns the field of a case class: the compiler confuses methods that Scala compiles twice. */
  static Object field(Product object, String name) {
    for (int i = 0; i < object.productArity(); i++) {
      if (name.equals(object.productElementName(i))) {
        return object.productElement(i);
      }
    }
    throw new IllegalStateException(object.getClass().getName() + " without " + name);
  }

  static boolean hasField(Product object, String name) {
    for (int i = 0; i < object.productArity(); i++) {
      if (name.equals(object.productElementName(i))) {
        return true;
      }
    }
    return false;
  }

  /** Returns the command that appends rows by position; it has more arguments in later versions. */
  static Object append(Object relation, Object query) throws ReflectiveOperationException {
    Object companion = AppendData$.MODULE$;
    Method append = method(companion.getClass(), "byPosition");
    Object[] arguments = new Object[append.getParameterTypes().length];
    arguments[0] = relation;
    arguments[1] = query;
    for (int i = 2; i < arguments.length; i++) {
      Method value = method(companion.getClass(), "byPosition$default$" + (i + 1));
      arguments[i] = value.invoke(companion, new Object[0]);
    }
    return append.invoke(companion, arguments);
  }

  /** Runs a command. The method has more arguments in later versions, which have defaults. */
  static void execute(SparkSession session, LogicalPlan plan) {
    try {
      Object state = session.sessionState();
      Method execute = method(state.getClass(), "executePlan");
      Object[] arguments = new Object[execute.getParameterTypes().length];
      arguments[0] = plan;
      for (int i = 1; i < arguments.length; i++) {
        Method value = method(state.getClass(), "executePlan$default$" + (i + 1));
        arguments[i] = value.invoke(state, new Object[0]);
      }
      ((QueryExecution) execute.invoke(state, arguments)).assertCommandExecuted();
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Computes the rows of a frame, and returns a frame that has them. */
  static Dataset checkpointed(Dataset rows, StorageLevel level)
      throws ReflectiveOperationException {
    // Scala compiles the method twice, with two types of results.
    return (Dataset)
        Dataset.class
            .getMethod("localCheckpoint", new Class[] {Boolean.TYPE, StorageLevel.class})
            .invoke(rows, new Object[] {Boolean.TRUE, level});
  }

  /** Returns a constant that is not null. The name of Spark's method is a word of Java. */
  static Literal defaultOf(DataType type) throws ReflectiveOperationException {
    return (Literal) method(Literal.class, "default").invoke(null, new Object[] {type});
  }

  /** Calls a method without arguments, whose class is public in some versions only. */
  static Object call(Object target, String name) {
    try {
      Method method = method(target.getClass(), name);
      method.setAccessible(true);
      return method.invoke(target, new Object[0]);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  private static Method method(Class owner, String name) throws NoSuchMethodException {
    Method[] methods = owner.getMethods();
    for (int i = 0; i < methods.length; i++) {
      if (methods[i].getName().equals(name)) {
        return methods[i];
      }
    }
    throw new NoSuchMethodException(owner.getName() + "." + name);
  }
}
