package org.lancespark;

import java.util.IdentityHashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.execution.datasources.ResolveSQLOnFile;
import scala.collection.Seq;

/**
 * Spark's rule for direct queries on files, such as SELECT * FROM parquet.`/path`, for plans in
 * which names of tables begin with the name of our format.
 *
 * <p>Spark looks a name up in catalogs first in each pass of its analyzer, and takes it for files
 * at the end of the same pass. A name that only becomes known in between, such as IDENTIFIER('lance.'
 * || 't'), or whose TIMESTAMP AS OF does, is refused before a catalog is asked. So that rule does
 * not see such names if they can be names of tables. The next pass finds the tables.
 */
public class TablesBeforeFiles extends Rule {
  private final Rule files;

  private TablesBeforeFiles(Rule files) {
    this.files = files;
  }

  /** Puts the rule in the place of Spark's. */
  static void addTo(SparkSession session) {
    SessionRule.replaceIn(session, new Replacement());
  }

  static class Replacement extends Replacing {
    public boolean isDefinedAt(Object rule) {
      return rule instanceof ResolveSQLOnFile;
    }

    Object replaced(Object rule) {
      return new TablesBeforeFiles((Rule) rule);
    }
  }

  public TreeNode apply(TreeNode plan) {
    Map originals = new IdentityHashMap();
    TreeNode hidden = (TreeNode) ((LogicalPlan) plan).resolveOperators(new Hiding(originals));
    if (originals.isEmpty()) {
      return files.apply(plan);
    }
    LogicalPlan applied = (LogicalPlan) files.apply(hidden);
    return (TreeNode) applied.resolveOperators(new Showing(originals));
  }

  /** Gives names of tables one more part, because files have names of two parts. */
  class Hiding extends Replacing {
    private final Map originals;

    Hiding(Map originals) {
      this.originals = originals;
    }

    public boolean isDefinedAt(Object node) {
      UnresolvedRelation relation = relationOf(node);
      return relation != null && isTable(relation.multipartIdentifier());
    }

    Object replaced(Object node) {
      UnresolvedRelation relation = relationOf(node);
      Object parts = relation.multipartIdentifier().appended("");
      try {
        Object hidden =
            SparkShims.copy(relation, new SparkField[] {SparkField.MULTIPART_IDENTIFIER}, new Object[] {parts});
        if (node != relation) {
          hidden =
              SparkShims.copy(node, new SparkField[] {SparkField.RELATION}, new Object[] {hidden});
        }
        originals.put(hidden, node);
        return hidden;
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }

    private UnresolvedRelation relationOf(Object node) {
      Object relation =
          node instanceof RelationTimeTravel ? ((RelationTimeTravel) node).relation() : node;
      return relation instanceof UnresolvedRelation ? (UnresolvedRelation) relation : null;
    }
  }

  static class Showing extends Replacing {
    private final Map originals;

    Showing(Map originals) {
      this.originals = originals;
    }

    public boolean isDefinedAt(Object node) {
      return originals.containsKey(node);
    }

    Object replaced(Object node) {
      return originals.get(node);
    }
  }

  /** Returns whether a name of two parts begins with our format, and a catalog may know it. */
  private boolean isTable(Seq parts) {
    if (parts.size() != 2 || !PythonCall.FORMAT.equalsIgnoreCase((String) parts.head())) {
      return false;
    }
    String first = (String) parts.head();
    CatalogManager manager = SparkSession.active().sessionState().catalogManager();
    return manager.isCatalogRegistered(first)
        || (manager.currentCatalog() instanceof SupportsNamespaces
            && ((SupportsNamespaces) manager.currentCatalog())
                .namespaceExists(new String[] {first}));
  }
}
