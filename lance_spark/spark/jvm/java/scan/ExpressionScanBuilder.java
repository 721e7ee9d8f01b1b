package org.lancespark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Receives filters as Catalyst expressions. */
public class ExpressionScanBuilder extends RequestScanBuilder
    implements SupportsPushDownCatalystFilters {
  ExpressionScanBuilder(RequestTable table, CaseInsensitiveStringMap options) {
    super(table, options);
  }

  /**
   * Takes the filters that the reader answers exactly, and returns the other filters. Filters after
   * one that may raise an error stay with Spark, so that it raises the same errors.
   */
  public Seq pushFilters(Seq filters) {
    try {
      List others = new ArrayList();
      List shown = new ArrayList();
      List forms = new ArrayList();
      List all = CollectionConverters.asJava(filters);
      int failing = Failures.first(all);
      for (int i = 0; i < all.size(); i++) {
        Expression filter = (Expression) all.get(i);
        Object form = Failures.isBefore(i, failing, all) ? Expressions.write(filter) : null;
        if (!Forms.isSent(form)) {
          others.add(filter);
        } else {
          forms.add(form);
          shown.add(new Shown(filter.sql()));
          isSelective = isSelective || SelectiveFilter.isSelective(filter);
        }
      }
      take(forms, shown);
      if (isSelective && isJoined) {
        others.add(SelectiveFilter.make());
      }
      return CollectionConverters.asScala(others).toSeq();
    } catch (Exception e) {
      Log.leftToSpark("filters", e);
    } catch (LinkageError e) {
      Log.leftToSpark("filters", e);
    }
    return filters;
  }

  public Predicate[] pushedFilters() {
    return pushed();
  }

  /** A filter as EXPLAIN shows it. */
  static final class Shown extends Predicate {
    private static final long serialVersionUID = 1L;

    private final String text;

    Shown(String text) {
      super("LANCE", new org.apache.spark.sql.connector.expressions.Expression[0]);
      this.text = text;
    }

    public String toString() {
      return text;
    }
  }
}
