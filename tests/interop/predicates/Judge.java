package org.lancespark.predicates;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.TryEval;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataTypes;

/** What Spark makes of many texts, by one call from Python: a call for each step of each text takes longer than the steps. */
public final class Judge {
  private Judge() {}

  /**
   * Analyses texts on a frame.
   *
   * <p>Returns an array of four for each text: why it is no predicate, or null; its column; why its plan cannot be optimised, or null;
   * and what push-down is handed of the plan, as JSON.
   */
  public static Object analyse(Object frame, Object texts, Object write, Object isSent, Object json) {
    Object[] given = (Object[]) texts;
    Object[] found = new Object[given.length];
    for (int at = 0; at < given.length; at++) {
      found[at] = one((Dataset) frame, (String) given[at], (Method) write, (Method) isSent, (Method) json);
    }
    return found;
  }

  private static Object[] one(Dataset frame, String text, Method write, Method isSent, Method json) {
    Dataset rows;
    Object column;
    try {
      rows = (Dataset) frame.where(text);
      Expression parsed = frame.sparkSession().sessionState().sqlParser().parseExpression(text);
      List children = new ArrayList();
      children.add(parsed);
      children.add(Literal.create(Boolean.FALSE, DataTypes.BooleanType));
      Expression known = new Coalesce(scala.jdk.javaapi.CollectionConverters.asScala(children).toSeq());
      column = ExpressionUtils.column(new TryEval(known));
    } catch (Throwable e) {
      return new Object[] {message(e), null, null, null};
    }
    try {
      return new Object[] {null, column, null, pushed(rows, write, isSent, json)};
    } catch (Throwable e) {
      return new Object[] {null, column, message(e), null};
    }
  }

  private static String message(Throwable e) {
    String text = String.valueOf(e.getMessage()).trim();
    return text.isEmpty() ? e.getClass().getName() : text.split("\n")[0];
  }

  private static String pushed(Dataset rows, Method write, Method isSent, Method json) throws Throwable {
    LogicalPlan plan = rows.queryExecution().optimizedPlan();
    while (plan instanceof Project) {
      plan = (LogicalPlan) ((Project) plan).child();
    }
    if (plan.nodeName().equals("LocalRelation")) {
      return "{\"empty\": true}";
    }
    if (!(plan instanceof Filter)) {
      boolean all = plan.nodeName().startsWith("Relation") || plan.nodeName().startsWith("LogicalRelation");
      return "{\"trees\": [], \"left\": " + (all ? 0 : 1) + "}";
    }
    List conditions = new ArrayList();
    split(((Filter) plan).condition(), conditions);
    StringBuilder trees = new StringBuilder();
    int left = 0;
    try {
      for (int at = 0; at < conditions.size(); at++) {
        Object form = write.invoke(null, new Object[] {conditions.get(at)});
        if (form == null || !((Boolean) isSent.invoke(null, new Object[] {form})).booleanValue()) {
          left++;
        } else {
          trees.append(trees.length() == 0 ? "" : ", ").append(json.invoke(null, new Object[] {form}));
        }
      }
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
    return "{\"trees\": [" + trees + "], \"left\": " + left + "}";
  }

  private static void split(Expression condition, List found) {
    if (condition instanceof And) {
      split(((And) condition).left(), found);
      split(((And) condition).right(), found);
    } else {
      found.add(condition);
    }
  }

  /** Returns the rows' numbers, and the values of columns. */
  public static Object select(Object frame, Object columns) {
    Object[] given = (Object[]) columns;
    org.apache.spark.sql.Column[] chosen = new org.apache.spark.sql.Column[given.length + 1];
    chosen[0] = ((Dataset) frame).col("row");
    for (int at = 0; at < given.length; at++) {
      chosen[at + 1] = ((org.apache.spark.sql.Column) given[at]).as("p" + at);
    }
    return ((Dataset) frame).select(chosen);
  }
}
