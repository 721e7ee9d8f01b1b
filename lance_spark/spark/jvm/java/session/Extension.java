package org.lancespark;

import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** The class that spark.sql.extensions names: it adds the rules, the functions and the parser. */
public class Extension extends AbstractFunction1 {
  private static final Set SEEN =
      Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap()));

  /**
   * Adds the rules to the extensions of sessions.
   *
   * @throws UnsupportedOperationException Spark is of another release than the classes
   */
  public Object apply(Object extensions) {
    SparkShims.check();
    // Sessions share their extensions. Another thread must not go on with a part of the rules.
    synchronized (SEEN) {
      if (SEEN.add(extensions)) {
        inject((SparkSessionExtensions) extensions);
      }
    }
    return BoxedUnit.UNIT;
  }

  private static void inject(SparkSessionExtensions target) {
    List rules = SessionRule.all();
    for (int i = 0; i < rules.size(); i++) {
      ((SessionRule) rules.get(i)).addTo(target);
    }
    target.injectCheckRule(new FunctionsOfSession());
    target.injectTableFunction(ChangesFunction.description());
    SearchFunction.addTo(target);
    target.injectParser(new ParserOfSession());
  }

  /** Returns whether sessions with these extensions have the rule. */
  public static boolean isIn(Object extensions) {
    return SEEN.contains(extensions);
  }

  /** Adds what sessions take only when they start to a session that runs already. */
  public static Object addTo(Object session) {
    SparkShims.check();
    StatementParser.addTo((SparkSession) session);
    SearchFunction.addTo((SparkSession) session);
    VectorFunctions.addTo((SparkSession) session);
    ChangesFunction.addTo((SparkSession) session);
    TablesBeforeFiles.addTo((SparkSession) session);
    List rules = SessionRule.all();
    for (int i = 0; i < rules.size(); i++) {
      ((SessionRule) rules.get(i)).addTo((SparkSession) session);
    }
    return null;
  }

  /**
   * Adds functions to a session. Spark asks for the checks of a session before it analyzes the first
   * query. This one checks nothing.
   */
  static class FunctionsOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      try {
        VectorFunctions.addTo((SparkSession) session);
        ChangesFunction.addTo((SparkSession) session);
      } catch (Exception e) {
        Log.leftToSpark("functions", e);
      } catch (LinkageError e) {
        Log.leftToSpark("functions", e);
      }
      return new NoCheck();
    }
  }

  static class NoCheck extends AbstractFunction1 {
    public Object apply(Object plan) {
      return BoxedUnit.UNIT;
    }
  }

  static class ParserOfSession extends AbstractFunction2 {
    public Object apply(Object session, Object parser) {
      return StatementParser.before(session, parser);
    }
  }
}
