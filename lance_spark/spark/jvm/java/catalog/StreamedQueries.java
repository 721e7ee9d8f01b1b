package org.lancespark;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.streaming.WriteToStream;

/** Replaces the queries of streams that are written to Lance tables. */
abstract class StreamedQueries extends Replacing {
  /** Returns what stands in the place of a resolved query: the query itself if it stays. */
  abstract LogicalPlan changed(LogicalPlan query, WriteToStream write);

  public boolean isDefinedAt(Object node) {
    return node instanceof WriteToStream
        && (((WriteToStream) node).sink() instanceof NamedTable
            || ((WriteToStream) node).sink() instanceof PathTable);
  }

  Object replaced(Object node) {
    WriteToStream write = (WriteToStream) node;
    LogicalPlan query = write.inputQuery();
    LogicalPlan changed = query.resolved() ? changed(query, write) : query;
    if (changed == query) {
      return node;
    }
    try {
      return SparkShims.copy(
          node, new SparkField[] {SparkField.INPUT_QUERY}, new Object[] {changed});
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }
}
