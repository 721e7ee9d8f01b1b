package org.lancespark;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.TableFunctionRegistry;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.Decimal;
import scala.Function1;
import scala.Option;
import scala.Tuple3;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/**
 * The table function lance_search: rows whose text matches a query, those with the greatest scores
 * first. Other connectors call it search.
 */
public class SearchFunction extends AbstractFunction1 {
  static final String NAME = "lance_search";
  static final String SHORT_NAME = "search";

  private final String name;

  private SearchFunction(String name) {
    this.name = name;
  }

  /** Returns the function as extensions of sessions register it. */
  static Tuple3 description(String name) {
    ExpressionInfo info = new ExpressionInfo(SearchFunction.class.getName(), name);
    return new Tuple3(new FunctionIdentifier(name), info, new SearchFunction(name));
  }

  /**
   * Adds the functions of the session's extensions to a session that runs already. The session keeps
   * its own function of the short name.
   */
  static void addTo(SparkSession session) {
    TableFunctionRegistry registry = session.sessionState().tableFunctionRegistry();
    FunctionIdentifier id = new FunctionIdentifier(SHORT_NAME);
    boolean isKept = !Versions.qualifiesFunctions() && registry.functionExists(id);
    Object info = isKept ? registry.lookupFunction(id).get() : null;
    Object builder = isKept ? registry.lookupFunctionBuilder(id).get() : null;
    session.extensions().registerTableFunctions(registry);
    if (isKept) {
      registry.registerFunction(id, (ExpressionInfo) info, (Function1) builder);
    }
  }

  /** Returns the plan of a call. */
  public Object apply(Object expressions) {
    List given = new ArrayList(CollectionConverters.asJava((Seq) expressions));
    List positional = new ArrayList();
    Map named = new LinkedHashMap();
    for (int i = 0; i < given.size(); i++) {
      Expression expression = (Expression) given.get(i);
      if (expression instanceof NamedArgumentExpression) {
        NamedArgumentExpression argument = (NamedArgumentExpression) expression;
        if (named.put(argument.key(), valueOf(argument.value())) != null) {
          throw new IllegalArgumentException(
              name + ": argument " + argument.key() + " is given twice; remove one");
        }
      } else if (named.isEmpty()) {
        positional.add(valueOf(expression));
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
    Map reply = PythonCall.reply("load_search", arguments);
    if (reply.containsKey("error")) {
      throw new IllegalArgumentException((String) ((Map) reply.get("error")).get("message"));
    }
    SearchTable table = new SearchTable(name + "(" + text + ")", reply);
    LogicalPlan relation =
        DataSourceV2Relation.create(table, Option.empty(), Option.empty());
    Dataset rows = Dataset$.MODULE$.ofRows(SparkSession.active(), relation);
    rows = rows.orderBy(new Column[] {functions.desc("_score"), functions.asc("_rowaddr")});
    if (reply.get("limit") != null) {
      int offset = ((Number) reply.get("offset")).intValue();
      rows = rows.limit(((Number) reply.get("limit")).intValue() + offset).offset(offset);
    }
    if (reply.get("where") != null) {
      rows = rows.where((String) reply.get("where"));
    }
    if (Boolean.TRUE.equals(reply.get("drops_address"))) {
      rows = rows.drop("_rowaddr");
    }
    return rows.queryExecution().analyzed();
  }

  /** Returns the value of an argument, for JSON. */
  private Object valueOf(Expression expression) {
    Object value;
    try {
      value = expression.eval(InternalRow.empty());
    } catch (Exception e) {
      throw new IllegalArgumentException(
          name + ": an argument must be a constant, not " + expression);
    }
    if (value instanceof ArrayData && expression.dataType() instanceof ArrayType) {
      Object[] items = ((ArrayData) value).array();
      List texts = new ArrayList();
      for (int i = 0; i < items.length; i++) {
        texts.add(items[i] == null ? null : String.valueOf(items[i]));
      }
      return texts;
    }
    if (value == null || value instanceof Boolean) {
      return value;
    }
    return value instanceof Number && !(value instanceof Decimal) ? value : String.valueOf(value);
  }
}
