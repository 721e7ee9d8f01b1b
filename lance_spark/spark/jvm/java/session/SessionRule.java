package org.lancespark;

import java.util.List;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;

/**
 * A rule of Spark's analyzer, optimizer or planner, and when Spark applies it.
 *
 * <p>A rule has no state. All sessions have the same one, which takes the active session: Spark
 * makes the session of a query the active one before it plans the query.
 */
final class SessionRule {
  /** Before the analyzer looks tables up. */
  static final String HINTS = SparkShims.HINTS;

  /** With the other rules of the analyzer, until no rule changes the plan any more. */
  static final String RESOLUTION = SparkShims.RESOLUTION;

  /** After the other rules of the analyzer. */
  static final String POST_HOC = SparkShims.POST_HOC;

  /** After the analyzer: raises an error, or does nothing. */
  static final String CHECKS = SparkShims.CHECKS;

  /** In the optimizer, after Spark has pushed columns and filters down. */
  static final String PRE_CBO = "preCBORules";

  /** In the planner, before Spark's own strategies. */
  static final String STRATEGIES = "plannerStrategies";

  private final String kind;
  private final Object rule;

  SessionRule(String kind, Object rule) {
    this.kind = kind;
    this.rule = rule;
  }

  /** Adds the rule to the extensions of sessions that start later. */
  void addTo(SparkSessionExtensions target) {
    AbstractFunction1 builder = new Builder(rule);
    if (kind == HINTS) {
      target.injectHintResolutionRule(builder);
    } else if (kind == RESOLUTION) {
      target.injectResolutionRule(builder);
    } else if (kind == POST_HOC) {
      target.injectPostHocResolutionRule(builder);
    } else if (kind == CHECKS) {
      target.injectCheckRule(builder);
    } else if (kind == PRE_CBO) {
      target.injectPreCBORule(builder);
    } else {
      target.injectPlannerStrategy(builder);
    }
  }

  /**
   * Adds the rule to a session that runs already, whose analyzer does not ask for new ones. Its
   * optimizer and its planner ask for each query. If the rule cannot be added, Spark leaves out what
   * it does.
   */
  void addTo(SparkSession session) {
    if (kind == PRE_CBO || kind == STRATEGIES) {
      return;
    }
    try {
      List rules = SparkShims.rules(session, kind);
      if (!rules.contains(rule)) {
        rules.add(rule);
        SparkShims.setRules(session, kind, rules);
      }
    } catch (ReflectiveOperationException e) {
      Log.leftToSpark(kind, e);
    } catch (RuntimeException e) {
      Log.leftToSpark(kind, e);
    }
  }

  /** Replaces rules of Spark among those of the analyzer of a session that runs already. */
  static void replaceIn(SparkSession session, Replacing replacing) {
    try {
      List rules = SparkShims.rules(session, RESOLUTION);
      boolean isReplaced = false;
      for (int i = 0; i < rules.size(); i++) {
        if (replacing.isDefinedAt(rules.get(i))) {
          rules.set(i, replacing.replaced(rules.get(i)));
          isReplaced = true;
        }
      }
      if (isReplaced) {
        SparkShims.setRules(session, RESOLUTION, rules);
      }
    } catch (ReflectiveOperationException e) {
      Log.leftToSpark(RESOLUTION, e);
    } catch (RuntimeException e) {
      Log.leftToSpark(RESOLUTION, e);
    }
  }

  /** What Spark asks for the rule of a session. */
  static final class Builder extends AbstractFunction1 {
    private final Object rule;

    Builder(Object rule) {
      this.rule = rule;
    }

    public Object apply(Object session) {
      return rule;
    }
  }
}
