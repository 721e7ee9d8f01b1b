package org.lancespark;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** The class that spark.sql.extensions names: it adds the rule, the strategies and the parser. */
public class Extension extends AbstractFunction1 {
  private static final Set SEEN =
      Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap()));

  public Object apply(Object extensions) {
    if (!Versions.isKnown()) {
      Log.once(
          "format(\"lance\") supports push-down in Spark 4.0 to 4.3, not in " + Versions.spark());
      return BoxedUnit.UNIT;
    }
    // Sessions share their extensions. Another thread must not go on with a part of the rules.
    synchronized (SEEN) {
      if (SEEN.add(extensions)) {
        inject((SparkSessionExtensions) extensions);
      }
    }
    return BoxedUnit.UNIT;
  }

  private static void inject(SparkSessionExtensions target) {
    target.injectPreCBORule(new RuleOfSession());
    target.injectPreCBORule(new RowChangeRuleOfSession());
    target.injectTableFunction(ChangesFunction.description());
    SearchFunction.addTo(target);
    target.injectCheckRule(new FunctionsOfSession());
    target.injectResolutionRule(new ReplacedRowsOfSession());
    target.injectPostHocResolutionRule(new RandomValuesOfSession());
    target.injectPostHocResolutionRule(new LateralSearchOfSession());
    if (Versions.leavesColumnsOut()) {
      target.injectResolutionRule(new MissingColumnsOfSession());
    }
    if (Versions.joinsNearest()) {
      target.injectPostHocResolutionRule(new NearestJoinRuleOfSession());
    }
    target.injectPlannerStrategy(new SelectiveFilterOfSession());
    target.injectPlannerStrategy(new DriverRowsStrategyOfSession());
    target.injectPlannerStrategy(new KeysStrategyOfSession());
    target.injectPlannerStrategy(new PackedStrategyOfSession());
    target.injectParser(new ParserOfSession());
  }

  /** Returns whether sessions with these extensions have the rule. */
  public static boolean isIn(Object extensions) {
    return SEEN.contains(extensions);
  }

  /** Adds what sessions take only when they start to a session that runs already. */
  public static Object addTo(Object session) {
    if (Versions.isKnown()) {
      StatementParser.addTo((SparkSession) session);
      SearchFunction.addTo((SparkSession) session);
      VectorFunctions.addTo((SparkSession) session);
      ReplacedRowsRule.addTo((SparkSession) session);
      RandomValuesRule.addTo((SparkSession) session);
      LateralSearchRule.addTo((SparkSession) session);
      if (Versions.leavesColumnsOut()) {
        MissingColumnsRule.addTo((SparkSession) session);
      }
      if (Versions.joinsNearest()) {
        addRule((SparkSession) session, "postHocResolutionRules", new NearestJoinRule());
      }
    }
    return null;
  }

  /**
   * Adds a rule to a session that runs already, whose analyzer does not ask for new rules. If it
   * cannot be added, Spark leaves out what the rule does.
   *
   * @param name the field of the analyzer with rules of this kind
   */
  static void addRule(SparkSession session, String name, Rule rule) {
    try {
      Object analyzer = session.sessionState().analyzer();
      Field field = analyzer.getClass().getDeclaredField(name);
      field.setAccessible(true);
      List rules = new ArrayList(CollectionConverters.asJava((Seq) field.get(analyzer)));
      for (int i = 0; i < rules.size(); i++) {
        if (rules.get(i).getClass() == rule.getClass()) {
          return;
        }
      }
      rules.add(rule);
      field.set(analyzer, CollectionConverters.asScala(rules).toSeq());
    } catch (ReflectiveOperationException e) {
      Log.leftToSpark(name, e);
    } catch (RuntimeException e) {
      Log.leftToSpark(name, e);
    }
  }

  /** Makes the rule. Spark asks for the rules of a session once for each query. */
  public static class RuleOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new PushDownRule();
    }
  }

  public static class RowChangeRuleOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new RowChangeRule();
    }
  }

  /**
   * Adds functions to a session. Spark asks for the checks of a session before it analyzes the first
   * query. This one checks nothing.
   */
  public static class FunctionsOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      try {
        VectorFunctions.addTo((SparkSession) session);
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

  public static class ReplacedRowsOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new ReplacedRowsRule();
    }
  }

  public static class RandomValuesOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new RandomValuesRule();
    }
  }

  public static class LateralSearchOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new LateralSearchRule();
    }
  }

  public static class MissingColumnsOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new MissingColumnsRule();
    }
  }

  public static class NearestJoinRuleOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new NearestJoinRule();
    }
  }

  /** Makes a strategy. Spark asks for the strategies of a session once for each query too. */
  public static class DriverRowsStrategyOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new DriverRowsStrategy();
    }
  }

  public static class SelectiveFilterOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new SelectiveFilter();
    }
  }

  public static class KeysStrategyOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new KeysStrategy();
    }
  }

  public static class PackedStrategyOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new PackedStrategy();
    }
  }

  public static class ParserOfSession extends AbstractFunction2 {
    public Object apply(Object session, Object parser) {
      return StatementParser.before(session, parser);
    }
  }
}
