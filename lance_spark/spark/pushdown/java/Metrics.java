package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.util.Utils;

/** What the web interface shows of a scan besides Spark's own counters. */
final class Metrics {
  private Metrics() {}

  /** Returns Spark's counters and those of this package, if Spark finds their classes: not those of a running session. */
  static CustomMetric[] with(CustomMetric[] others) {
    if (!areFound()) {
      return others;
    }
    CustomMetric[] all = new CustomMetric[others.length + 2];
    System.arraycopy(others, 0, all, 0, others.length);
    all[others.length] = new FragmentsScanned();
    all[others.length + 1] = new FragmentsSkipped();
    return all;
  }

  /** Returns the values that are known once a scan is planned. */
  static CustomTaskMetric[] of(Answer answer) {
    if (!areFound()) {
      return new CustomTaskMetric[0];
    }
    return new CustomTaskMetric[] {
      new Value(new FragmentsScanned().name(), answer.scanned),
      new Value(new FragmentsSkipped().name(), answer.fragments - answer.scanned)
    };
  }

  private static boolean areFound() {
    try {
      ClassLoader loader = Utils.getContextOrSparkClassLoader();
      return Class.forName(FragmentsScanned.class.getName(), false, loader) == FragmentsScanned.class;
    } catch (ClassNotFoundException e) {
      return false;
    }
  }

  static final class Value implements CustomTaskMetric {
    private final String name;
    private final long value;

    Value(String name, long value) {
      this.name = name;
      this.value = value;
    }

    public String name() {
      return name;
    }

    public long value() {
      return value;
    }
  }
}
