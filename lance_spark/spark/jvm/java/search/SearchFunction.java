package org.lancespark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.TableFunctionRegistry;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.expressions.OuterReference;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import scala.Function1;
import scala.Option;
import scala.Tuple3;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/**
 * The table functions lance_search, lance_vector_search and lance_hybrid_search: rows whose text
 * matches a query, whose vectors are the nearest ones, or both. Other connectors call them search,
 * vector_search and hybrid_search.
 */
public class SearchFunction extends AbstractFunction1 {
  private static final String[] SHORT_NAMES = {"search", "vector_search", "hybrid_search"};
  private static final String PREFIX = "lance_";
  private static final String VECTOR = "query_vector";

  /** Stands for a vector of each row before LATERAL. */
  private static final List ANY_VECTOR = Arrays.asList(new Object[] {Integer.valueOf(0)});

  private final String name;

  private SearchFunction(String name) {
    this.name = name;
  }

  /** Adds the functions to the extensions of sessions. */
  static void addTo(SparkSessionExtensions extensions) {
    for (int i = 0; i < SHORT_NAMES.length; i++) {
      extensions.injectTableFunction(description(PREFIX + SHORT_NAMES[i]));
      extensions.injectTableFunction(description(SHORT_NAMES[i]));
    }
  }

  private static Tuple3 description(String name) {
    ExpressionInfo info = new ExpressionInfo(SearchFunction.class.getName(), name);
    return new Tuple3(new FunctionIdentifier(name), info, new SearchFunction(name));
  }

  /**
   * Adds the functions of the session's extensions to a session that runs already. The session keeps
   * its own functions of the short names.
   */
  static void addTo(SparkSession session) {
    TableFunctionRegistry registry = session.sessionState().tableFunctionRegistry();
    Object[] infos = new Object[SHORT_NAMES.length];
    Object[] builders = new Object[SHORT_NAMES.length];
    for (int i = 0; i < SHORT_NAMES.length; i++) {
      FunctionIdentifier id = new FunctionIdentifier(SHORT_NAMES[i]);
      if (!SparkRelease.qualifiesFunctions() && registry.functionExists(id)) {
        infos[i] = registry.lookupFunction(id).get();
        builders[i] = registry.lookupFunctionBuilder(id).get();
      }
    }
    session.extensions().registerTableFunctions(registry);
    for (int i = 0; i < SHORT_NAMES.length; i++) {
      if (infos[i] != null) {
        registry.registerFunction(
            new FunctionIdentifier(SHORT_NAMES[i]),
            (ExpressionInfo) infos[i],
            (Function1) builders[i]);
      }
    }
  }

  /** Returns the plan of a call. */
  public Object apply(Object expressions) {
    List given = new ArrayList(CollectionConverters.asJava((Seq) expressions));
    List positional = new ArrayList();
    Map named = new LinkedHashMap();
    Expression vector = null;
    for (int i = 0; i < given.size(); i++) {
      Expression expression = (Expression) given.get(i);
      if (expression instanceof NamedArgumentExpression) {
        NamedArgumentExpression argument = (NamedArgumentExpression) expression;
        boolean isVector = isVectorOfRow(argument.value(), argument.key().equals(VECTOR));
        vector = isVector ? argument.value() : vector;
        Object value = isVector ? ANY_VECTOR : valueOf(argument.value());
        if (named.put(argument.key(), value) != null) {
          throw new IllegalArgumentException(
              name + ": argument " + argument.key() + " is given twice; remove one");
        }
      } else if (named.isEmpty()) {
        boolean isVector = isVectorOfRow(expression, i == 1);
        vector = isVector ? expression : vector;
        positional.add(isVector ? ANY_VECTOR : valueOf(expression));
      } else {
        throw new IllegalArgumentException(
            name + ": arguments without names must precede arguments with names");
      }
    }
    Object text = positional.isEmpty() ? named.get("table") : positional.get(0);
    Map arguments = ChangesFunction.ofTable(text == null ? "" : String.valueOf(text));
    arguments.put("function", name);
    arguments.put("positional", positional);
    arguments.put("named", named);
    arguments.put("is_lateral", Boolean.valueOf(vector != null));
    Map reply = PythonCall.reply("load_search", arguments);
    if (reply.containsKey("error")) {
      throw new IllegalArgumentException((String) ((Map) reply.get("error")).get("message"));
    }
    List searches = (List) reply.get("searches");
    if (vector != null) {
      Map search = (Map) searches.get(0);
      SearchTable table =
          new LateralTable(name + "(" + text + ")", search, (Map) reply.get("join_arguments"));
      Dataset stand = after(over(table, search), (List) reply.get("steps"));
      return new Filter(new EqualNullSafe(vector, vector), stand.queryExecution().analyzed());
    }
    Dataset rows = rowsOf((Map) searches.get(0), text);
    if (searches.size() > 1) {
      Dataset others = rowsOf((Map) searches.get(1), text);
      Column condition = functions.expr((String) reply.get("join"));
      rows = rows.join(others, condition, "full_outer");
    }
    return after(rows, (List) reply.get("steps")).queryExecution().analyzed();
  }

  /** Returns the rows of one search, under its alias. */
  private Dataset rowsOf(Map search, Object text) {
    return over(new SearchTable(name + "(" + text + ")", search), search);
  }

  private static Dataset over(SearchTable table, Map search) {
    LogicalPlan relation =
        DataSourceV2Relation.create(table, Option.empty(), Option.empty());
    Dataset rows = Dataset$.MODULE$.ofRows(SparkSession.active(), relation);
    return after(rows, (List) search.get("steps")).as((String) search.get("alias"));
  }

  /** Returns rows after some steps, as Python's search_steps names them. */
  private static Dataset after(Dataset rows, List steps) {
    for (int i = 0; i < steps.size(); i++) {
      String step = (String) ((List) steps.get(i)).get(0);
      Object value = ((List) steps.get(i)).get(1);
      if (step.equals("order")) {
        List keys = (List) value;
        Column[] columns = new Column[keys.size()];
        for (int j = 0; j < columns.length; j++) {
          List key = (List) keys.get(j);
          String column = (String) key.get(0);
          boolean descending = ((Boolean) key.get(1)).booleanValue();
          columns[j] = descending ? functions.desc(column) : functions.asc_nulls_last(column);
        }
        rows = rows.orderBy(columns);
      } else if (step.equals("limit")) {
        rows = rows.limit(((Number) value).intValue());
      } else if (step.equals("offset")) {
        rows = rows.offset(((Number) value).intValue());
      } else if (step.equals("where")) {
        rows = rows.where((String) value);
      } else if (step.equals("select")) {
        rows = rows.selectExpr((String[]) ((List) value).toArray(new String[0]));
      } else if (step.equals("drop")) {
        rows = rows.drop((String) value);
      } else {
        throw new IllegalArgumentException("a step of a search is not known: " + step);
      }
    }
    return rows;
  }

  /** Returns whether an argument is a vector that depends on the rows before LATERAL. */
  private boolean isVectorOfRow(Expression expression, boolean isVector) {
    return isVector
        && name.endsWith("vector_search")
        && expression.find(new IsOuter()).isDefined();
  }

  static class IsOuter extends AbstractFunction1 {
    public Object apply(Object node) {
      return Boolean.valueOf(node instanceof OuterReference);
    }
  }

  /** Returns the value of an argument, for JSON. */
  private Object valueOf(Expression given) {
    Expression expression = (Expression) given.transformUp(new Subqueries(name));
    Object value;
    try {
      value = expression.eval(InternalRow.empty());
    } catch (Exception e) {
      throw new IllegalArgumentException(
          name + ": an argument must be a constant, not " + expression);
    }
    return plain(value, value instanceof ArrayData ? expression.dataType() : null);
  }

  /** Replaces scalar subqueries by their values: the search is planned for a constant. */
  static class Subqueries extends Replacing {
    private final String function;

    Subqueries(String function) {
      this.function = function;
    }

    public boolean isDefinedAt(Object node) {
      return node instanceof ScalarSubquery && ((ScalarSubquery) node).outerAttrs().isEmpty();
    }

    Object replaced(Object node) {
      ScalarSubquery subquery = (ScalarSubquery) node;
      QueryExecution query =
          Dataset$.MODULE$.ofRows(SparkSession.active(), subquery.plan()).queryExecution();
      InternalRow[] rows =
          (InternalRow[])
              SQLExecution.withNewExecutionId(
                  query,
                  Option.apply("argument of " + function),
                  new KeptSource.Take(query.executedPlan(), 2));
      if (rows.length > 1) {
        throw new IllegalArgumentException(
            function + ": a subquery that is an argument must return one row, not several");
      }
      DataType type = subquery.dataType();
      return new Literal(rows.length == 0 ? null : rows[0].get(0, type), type);
    }
  }

  private static Object plain(Object value, DataType type) {
    if (value instanceof ArrayData && type instanceof ArrayType) {
      DataType itemType = ((ArrayType) type).elementType();
      Object[] items = (Object[]) ((ArrayData) value).toObjectArray(itemType);
      List list = new ArrayList();
      for (int i = 0; i < items.length; i++) {
        list.add(plain(items[i], itemType));
      }
      return list;
    }
    if (value == null || value instanceof Boolean) {
      return value;
    }
    if (value instanceof Decimal && ((Decimal) value).scale() > 0) {
      return Double.valueOf(((Decimal) value).toDouble());
    }
    return value instanceof Number && !(value instanceof Decimal) ? value : String.valueOf(value);
  }
}
