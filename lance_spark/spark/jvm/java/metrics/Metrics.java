package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.util.Utils;

/** Counters that the web interface shows besides Spark's own. */
final class Metrics {
  private Metrics() {}

  /** Returns the counters of a scan of Spark and of this package. */
  static CustomMetric[] ofScan(CustomMetric[] others, boolean isFresh) {
    CustomMetric[] planned = {new FragmentsScanned(), new FragmentsSkipped()};
    CustomMetric[] all = with(with(others, planned), ReadCounts.COUNTERS);
    CustomMetric[] fresh = {new SsTablesRead(), new WalEntriesRead()};
    return isFresh ? with(all, fresh) : all;
  }

  /**
   * Returns others and the own counters.
   *
   * <p>Without the latter if Spark does not find their classes, which were compiled in the session.
   */
  static CustomMetric[] with(CustomMetric[] others, CustomMetric[] counters) {
    if (!areOnClassPath()) {
      return others;
    }
    CustomMetric[] all = new CustomMetric[others.length + counters.length];
    System.arraycopy(others, 0, all, 0, others.length);
    System.arraycopy(counters, 0, all, others.length, counters.length);
    return all;
  }

  /** Returns the values of a planned scan. */
  static CustomTaskMetric[] of(PlanReply reply) {
    if (!areOnClassPath()) {
      return new CustomTaskMetric[0];
    }
    CustomTaskMetric scanned = new Value(new FragmentsScanned().name(), reply.scannedFragments);
    CustomTaskMetric skipped =
        new Value(new FragmentsSkipped().name(), reply.fragments - reply.scannedFragments);
    FreshSources fresh = reply.fresh;
    if (fresh == null) {
      return new CustomTaskMetric[] {scanned, skipped};
    }
    return new CustomTaskMetric[] {
      scanned,
      skipped,
      new Value(new SsTablesRead().name(), fresh.sstables),
      new Value(new WalEntriesRead().name(), fresh.entries)
    };
  }

  /** Notes that the execution of this thread runs a scan. */
  static void begin(ReadCounts counts) {
    if (counts != null) {
      counts.begin();
    }
  }

  static long sum(long[] values) {
    long sum = 0;
    for (int i = 0; i < values.length; i++) {
      sum += values[i];
    }
    return sum;
  }

  static boolean areOnClassPath() {
    try {
      ClassLoader loader = Utils.getContextOrSparkClassLoader();
      Class named = Class.forName(FragmentsScanned.class.getName(), false, loader);
      return named == FragmentsScanned.class;
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
