package org.lancespark;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSessionExtensions;
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
    target.injectCheckRule(new DescriptorCheckOfSession());
    target.injectResolutionRule(new ReplacedRowsOfSession());
    target.injectPostHocResolutionRule(new RandomValuesOfSession());
    target.injectResolutionRule(new StreamedTextOfSession());
    target.injectResolutionRule(new DefaultColumnsOfSession());
    target.injectPostHocResolutionRule(new LateralSearchOfSession());
    if (Versions.leavesColumnsOut()) {
      target.injectResolutionRule(new MissingColumnsOfSession());
    }
    if (Versions.padsBeforeDeletes()) {
      target.injectResolutionRule(new PaddedDeletesOfSession());
    }
    if (Versions.sharesOptions()) {
      target.injectHintResolutionRule(new OwnOptionsOfSession());
    }
    target.injectPostHocResolutionRule(new CharKeysOfSession());
    if (Versions.joinsNearest()) {
      target.injectPostHocResolutionRule(new NearestJoinRuleOfSession());
    }
    target.injectPostHocResolutionRule(new NewTableRuleOfSession());
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
      ChangesFunction.addTo((SparkSession) session);
      TablesBeforeFiles.addTo((SparkSession) session);
      RandomValuesRule.addTo((SparkSession) session);
      NewTableRule.addTo((SparkSession) session);
      addRule((SparkSession) session, "extendedResolutionRules", new StreamedTextRule());
      addRule((SparkSession) session, "extendedResolutionRules", new DefaultColumns());
      LateralSearchRule.addTo((SparkSession) session);
      if (Versions.leavesColumnsOut()) {
        MissingColumnsRule.addTo((SparkSession) session);
      }
      if (Versions.padsBeforeDeletes()) {
        addRule((SparkSession) session, "extendedResolutionRules", new PaddedDeletes());
      }
      if (Versions.sharesOptions()) {
        addRule(
            (SparkSession) session,
            "hintResolutionRules",
            new OwnOptionsRule((SparkSession) session));
      }
      addRule((SparkSession) session, "postHocResolutionRules", new CharKeys());
      addRule((SparkSession) session, "extendedCheckRules", new DescriptorCheck());
      if (Versions.joinsNearest()) {
        addRule((SparkSession) session, "postHocResolutionRules", new NearestJoinRule());
      }
    }
    return null;
  }

  /**
   * Adds a rule, or a check, to a session that runs already, whose analyzer does not ask for new
   * ones. If it cannot be added, Spark leaves out what the rule does.
   *
   * @param name the field of the analyzer with rules of this kind
   */
  static void addRule(SparkSession session, String name, Object rule) {
    try {
      List rules = rules(session, name);
      for (int i = 0; i < rules.size(); i++) {
        if (rules.get(i).getClass() == rule.getClass()) {
          return;
        }
      }
      rules.add(rule);
      setRules(session, name, rules);
    } catch (ReflectiveOperationException e) {
      Log.leftToSpark(name, e);
    } catch (RuntimeException e) {
      Log.leftToSpark(name, e);
    }
  }

  /** Replaces rules of Spark in a session; see addRule. */
  static void replaceRule(SparkSession session, String name, Replacing replacing) {
    try {
      List rules = rules(session, name);
      boolean isReplaced = false;
      for (int i = 0; i < rules.size(); i++) {
        if (replacing.isDefinedAt(rules.get(i))) {
          rules.set(i, replacing.replaced(rules.get(i)));
          isReplaced = true;
        }
      }
      if (isReplaced) {
        setRules(session, name, rules);
      }
    } catch (ReflectiveOperationException e) {
      Log.leftToSpark(name, e);
    } catch (RuntimeException e) {
      Log.leftToSpark(name, e);
    }
  }

  private static List rules(SparkSession session, String name)
      throws ReflectiveOperationException {
    Object analyzer = session.sessionState().analyzer();
    return new ArrayList(
        CollectionConverters.asJava((Seq) field(analyzer, name).get(analyzer)));
  }

  private static void setRules(SparkSession session, String name, List rules)
      throws ReflectiveOperationException {
    Object analyzer = session.sessionState().analyzer();
    field(analyzer, name).set(analyzer, CollectionConverters.asScala(rules).toSeq());
  }

  private static Field field(Object owner, String name) throws ReflectiveOperationException {
    Field field = owner.getClass().getDeclaredField(name);
    field.setAccessible(true);
    return field;
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
        ChangesFunction.addTo((SparkSession) session);
      } catch (Exception e) {
        Log.leftToSpark("functions", e);
      } catch (LinkageError e) {
        Log.leftToSpark("functions", e);
      }
      return new NoCheck();
    }
  }

  public static class DescriptorCheckOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new DescriptorCheck();
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

  public static class StreamedTextOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new StreamedTextRule();
    }
  }

  public static class DefaultColumnsOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new DefaultColumns();
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

  public static class PaddedDeletesOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new PaddedDeletes();
    }
  }

  public static class OwnOptionsOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new OwnOptionsRule((SparkSession) session);
    }
  }

  public static class CharKeysOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new CharKeys();
    }
  }

  public static class NearestJoinRuleOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new NearestJoinRule();
    }
  }

  public static class NewTableRuleOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new NewTableRule();
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
