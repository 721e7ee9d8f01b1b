package org.lancespark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Receives filters as predicates of the connector API. */
public class PredicateScanBuilder extends RequestScanBuilder implements SupportsPushDownV2Filters {
  PredicateScanBuilder(RequestTable table, CaseInsensitiveStringMap options) {
    super(table, options);
  }

  /** Takes the filters that the reader answers exactly, and returns the other filters. */
  public Predicate[] pushPredicates(Predicate[] predicates) {
    try {
      List others = new ArrayList();
      List shown = new ArrayList();
      List forms = new ArrayList();
      for (int i = 0; i < predicates.length; i++) {
        Object form = Predicates.write(predicates[i], table.schema());
        if (!Forms.isSent(form)) {
          others.add(predicates[i]);
        } else {
          forms.add(form);
          shown.add(predicates[i]);
        }
      }
      take(forms, shown);
      return (Predicate[]) others.toArray(new Predicate[others.size()]);
    } catch (Exception e) {
      Log.leftToSpark("filters", e);
    } catch (LinkageError e) {
      Log.leftToSpark("filters", e);
    }
    return predicates;
  }

  public Predicate[] pushedPredicates() {
    return pushed();
  }
}
