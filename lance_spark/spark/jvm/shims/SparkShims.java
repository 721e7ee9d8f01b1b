package org.lancespark;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.QueryContext;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.ColumnDefaultValue;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.CommandExecutionMode$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.internal.SessionState;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.storage.StorageLevel;
import org.apache.spark.util.AccumulatorV2;
import scala.Option;
import scala.Product;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What is private in Spark, or not callable from this compiler. All reflection is here.
 *
 * <p>`SparkRelease`, of which there is one for each release of Spark, has what differs between the
 * releases. `SparkField` has the names of fields. `tests/spark/jvm/test_shims.py` says for each use
 * what Spark has to have.
 */
final class SparkShims {
  /** Kinds of rules of the analyzer: the fields that hold them. */
  static final String RESOLUTION = "extendedResolutionRules";

  static final String HINTS = "hintResolutionRules";
  static final String POST_HOC = "postHocResolutionRules";
  static final String CHECKS = "extendedCheckRules";

  /** The source of a table that Spark has made. */
  private static final Field SOURCE = field(PythonTable.class, "ds");

  /** The parser of a session, which is made with the session. */
  private static final Field PARSER = field(SessionState.class, "sqlParser");

  /** Scala compiles the method twice, with two types of results. */
  private static final Method CHECKPOINT =
      method(
          Dataset.class, "localCheckpoint", new Class[] {Boolean.TYPE, StorageLevel.class});

  /** Its name is a word of Java. */
  private static final Method DEFAULT =
      method(Literal.class, "default", new Class[] {DataType.class});

  /** A method of a class that is public in some releases only. */
  private static final Method SQL = method(ColumnDefaultValue.class, "getSql", new Class[0]);

  /** The methods copy() of case classes, by the classes. */
  private static final Map COPIES = new ConcurrentHashMap();

  private SparkShims() {}

  /** Returns the rules of a kind that a session has. */
  static List rules(SparkSession session, String kind) throws ReflectiveOperationException {
    Analyzer analyzer = session.sessionState().analyzer();
    // The class is one without a name, which overrides the fields.
    Seq rules = (Seq) field(analyzer.getClass(), kind).get(analyzer);
    return new ArrayList(CollectionConverters.asJava(rules));
  }

  /** Replaces the rules of a kind that a session has. */
  static void setRules(SparkSession session, String kind, List rules)
      throws ReflectiveOperationException {
    Analyzer analyzer = session.sessionState().analyzer();
    field(analyzer.getClass(), kind).set(analyzer, CollectionConverters.asScala(rules).toSeq());
  }

  /** Replaces the parser of a session. */
  static void setParser(SparkSession session, Object parser) throws ReflectiveOperationException {
    PARSER.set(session.sessionState(), parser);
  }

  /** Runs the rules of the analyzer over a part of a statement, as Spark does for subqueries. */
  static LogicalPlan analyzed(SparkSession session, LogicalPlan plan) {
    return session
        .sessionState()
        .analyzer()
        .org$apache$spark$sql$catalyst$analysis$Analyzer$$executeSameContext(plan);
  }

  /** Returns the source of a table that Spark has made. */
  static PythonDataSourceV2 source(PythonTable table) {
    try {
      return (PythonDataSourceV2) SOURCE.get(table);
    } catch (IllegalAccessException e) {
      throw new IllegalStateException(e);
    }
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
    SparkField[] fields = {SparkField.TABLE, SparkField.OPTIONS};
    Object copy = copy(relation, fields, new Object[] {table, options});
    ((DataSourceV2Relation) copy).copyTagsFrom(relation);
    return copy;
  }

  /**
   * Returns a copy of a case class with other values of some fields. Its copy() differs by release.
   */
  static Object copy(Object original, SparkField[] fields, Object[] values)
      throws ReflectiveOperationException {
    Product product = (Product) original;
    Object[] arguments = new Object[product.productArity()];
    for (int i = 0; i < arguments.length; i++) {
      arguments[i] = product.productElement(i);
    }
    for (int i = 0; i < fields.length; i++) {
      int index = fields[i].index(product);
      if (index < 0) {
        throw new NoSuchFieldException(product.getClass().getName() + "." + fields[i]);
      }
      arguments[index] = values[i];
    }
    return copyOf(product.getClass(), arguments.length).invoke(product, arguments);
  }

  private static Method copyOf(Class owner, int arity) throws NoSuchMethodException {
    Method known = (Method) COPIES.get(owner);
    if (known == null) {
      Method[] methods = owner.getMethods();
      for (int i = 0; i < methods.length; i++) {
        if (methods[i].getName().equals("copy") && methods[i].getParameterCount() == arity) {
          known = methods[i];
        }
      }
      if (known == null) {
        throw new NoSuchMethodException(owner.getName() + ".copy");
      }
      COPIES.put(owner, known);
    }
    return known;
  }

  /** Returns a copy of a source whose Python function has another value of a field. */
  static UserDefinedPythonDataSource withFunctionOf(
      UserDefinedPythonDataSource original, SparkField field, Object value)
      throws ReflectiveOperationException {
    Object function =
        copy(original.dataSourceCls(), new SparkField[] {field}, new Object[] {value});
    return original.copy((PythonFunction) function);
  }

  /** A Python source whose tasks add values to an accumulator. */
  static class CountedSource extends PythonDataSourceV2 {
    private final UserDefinedPythonDataSource counted;

    CountedSource(PythonDataSourceV2 source, AccumulatorV2 accumulator) {
      try {
        counted = withFunctionOf(source.source(), SparkField.ACCUMULATOR, accumulator);
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }

    public UserDefinedPythonDataSource source() {
      return counted;
    }
  }

  /** Runs a command. */
  static void execute(SparkSession session, LogicalPlan plan) {
    session
        .sessionState()
        .executePlan(plan, CommandExecutionMode$.MODULE$.ALL())
        .assertCommandExecuted();
  }

  /**
   * Returns a frame that keeps the rows of another one. They are computed now if it is eager,
   * otherwise by the first job that reads them.
   */
  static Dataset checkpointed(Dataset rows, boolean isEager, StorageLevel level)
      throws ReflectiveOperationException {
    return (Dataset) CHECKPOINT.invoke(rows, new Object[] {Boolean.valueOf(isEager), level});
  }

  /** Returns a constant that is not null. */
  static Literal defaultOf(DataType type) throws ReflectiveOperationException {
    return (Literal) DEFAULT.invoke(null, new Object[] {type});
  }

  /** Returns the text of the default value of a column. */
  static String sqlOf(ColumnDefaultValue value) {
    try {
      return (String) SQL.invoke(value, new Object[0]);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Returns whether a cast or arithmetic raises an error for a value that has no result. */
  static boolean isAnsi(Expression e) {
    Object mode =
        e instanceof Cast ? ((Cast) e).evalMode() : ((BinaryArithmetic) e).evalMode();
    return "ANSI".equals(String.valueOf(mode));
  }

  /** Returns the tags of the jobs of a session, which each thread has. */
  static ThreadLocal jobTags(SparkSession session) {
    return session.managedJobTags();
  }

  /** Returns an AnalysisException with a text of our own, and the name of its condition. */
  static AnalysisException analysisException(String message, Option condition) {
    return new AnalysisException(
        message,
        Option.empty(),
        Option.empty(),
        Option.empty(),
        condition,
        (scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.empty(),
        new QueryContext[0]);
  }

  /* since 4.1
  // Returns a condition of the rows of a table. The compiler cannot call methods of interfaces.
  static Object check(String name, String condition, boolean rely) {
    try {
      org.apache.spark.sql.connector.catalog.constraints.Check.Builder builder =
          (org.apache.spark.sql.connector.catalog.constraints.Check.Builder)
              org.apache.spark.sql.connector.catalog.constraints.Constraint.class
                  .getMethod("check", new Class[] {String.class})
                  .invoke(null, new Object[] {name});
      builder.predicateSql(condition);
      builder.rely(rely);
      return builder.build();
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  // Returns a primary key that no client enforces.
  static Object primaryKey(String name, List columns) {
    org.apache.spark.sql.connector.expressions.NamedReference[] references =
        new org.apache.spark.sql.connector.expressions.NamedReference[columns.size()];
    for (int i = 0; i < references.length; i++) {
      references[i] =
          org.apache.spark.sql.connector.expressions.Expressions.column((String) columns.get(i));
    }
    try {
      org.apache.spark.sql.connector.catalog.constraints.PrimaryKey.Builder builder =
          (org.apache.spark.sql.connector.catalog.constraints.PrimaryKey.Builder)
              org.apache.spark.sql.connector.catalog.constraints.Constraint.class
                  .getMethod(
                      "primaryKey",
                      new Class[] {
                        String.class,
                        org.apache.spark.sql.connector.expressions.NamedReference[].class
                      })
                  .invoke(null, new Object[] {name, references});
      builder.enforced(false);
      return builder.build();
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  // Returns Spark's error for a catalog that has no constraints.
  static RuntimeException noConstraints(
      org.apache.spark.sql.connector.catalog.CatalogPlugin catalog,
      org.apache.spark.sql.connector.catalog.Identifier table) {
    return Errors.rethrow(
        (Exception)
            org.apache.spark.sql.errors.QueryCompilationErrors.unsupportedTableOperationError(
                catalog, table, "table constraint"));
  }
  since 4.1 */

  private static Field field(Class owner, String name) {
    try {
      Field field = owner.getDeclaredField(name);
      field.setAccessible(true);
      return field;
    } catch (NoSuchFieldException e) {
      throw new IllegalStateException(e);
    }
  }

  private static Method method(Class owner, String name, Class[] types) {
    try {
      Method method = owner.getMethod(name, types);
      method.setAccessible(true);
      return method;
    } catch (NoSuchMethodException e) {
      throw new IllegalStateException(e);
    }
  }
}
