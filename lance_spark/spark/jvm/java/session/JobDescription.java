package org.lancespark;

import org.apache.spark.SparkContext;

/**
 * Describes the Spark jobs of a statement in the web interface, unless the caller or Spark has
 * described them.
 *
 * <p>Spark runs the query of a write between two calls of the write, in the thread of the
 * statement. If the query fails, the second call is missing: then the next query that is planned in
 * the thread drops the description.
 */
final class JobDescription {
  private static final String KEY = "spark.job.description";
  private static final String EXECUTION = "spark.sql.execution.root.id";

  /** The description that this class has set in the thread, and its execution. */
  private static final ThreadLocal SET = new ThreadLocal();

  private JobDescription() {}

  /** Describes the jobs of this thread from now on. */
  static void begin(String text) {
    dropOld();
    SparkContext context = SparkContext.getOrCreate();
    if (context.getLocalProperty(KEY) == null) {
      context.setLocalProperty(KEY, text);
      SET.set(new String[] {text, String.valueOf(context.getLocalProperty(EXECUTION))});
    }
  }

  /** Ends what `begin` has begun. */
  static void end() {
    String[] set = (String[]) SET.get();
    if (set != null) {
      SET.remove();
      SparkContext context = SparkContext.getOrCreate();
      if (set[0].equals(context.getLocalProperty(KEY))) {
        context.setLocalProperty(KEY, null);
      }
    }
  }

  /** Ends the description of a statement that has failed. */
  static void dropOld() {
    String[] set = (String[]) SET.get();
    if (set != null) {
      SparkContext context = SparkContext.getOrCreate();
      if (!set[1].equals(String.valueOf(context.getLocalProperty(EXECUTION)))) {
        end();
      }
    }
  }
}
