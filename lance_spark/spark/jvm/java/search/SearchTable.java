package org.lancespark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The rows of a table that match a full-text query. */
public class SearchTable extends ChangesTable {
  SearchTable(String name, Map reply) {
    super(name, reply);
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap query) {
    Map all = new HashMap(options);
    all.putAll(query.asCaseSensitiveMap());
    RequestTable table = RequestTable.named(schema, Snapshot.ofQuery());
    RequestScanBuilder builder =
        RequestScanBuilder.of(table, new CaseInsensitiveStringMap(all));
    return PushDownRule.isEnabled() ? (ScanBuilder) builder : new ColumnScanBuilder(builder);
  }
}
