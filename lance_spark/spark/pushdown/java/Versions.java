package org.lancespark;

import java.lang.reflect.Method;
import org.apache.spark.JobArtifactSet$;
import org.apache.spark.JobArtifactState;
import org.apache.spark.SparkBuildInfo;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Product;

/** Where the versions of Spark differ. */
final class Versions {
  private Versions() {}

  static String spark() {
    return SparkBuildInfo.spark_version();
  }

  static boolean isKnown() {
    return spark().matches("4\\.[0-3]\\..*");
  }

  private static boolean isFirst() {
    return spark().startsWith("4.0.");
  }

  /** Spark 4.0 has the interface for its own files alone; what it hands over instead lacks LIKE. */
  static boolean handsExpressionsOver() {
    return !isFirst();
  }

  /** Spark 4.0 takes a batch without columns for one without rows. */
  static boolean takesBatchesWithoutColumns() {
    return !isFirst();
  }

  /** Returns the relation over another table. */
  static Object relationOver(DataSourceV2Relation relation, Table table) throws ReflectiveOperationException {
    Object copy = copy(relation, new String[] {"table"}, new Object[] {table});
    ((DataSourceV2Relation) copy).copyTagsFrom(relation);
    return copy;
  }

  /** Returns a case class with other values in some places; how many arguments its copy() has differs. */
  static Object copy(Product of, String[] names, Object[] values) throws ReflectiveOperationException {
    Object[] arguments = new Object[of.productArity()];
    int replaced = 0;
    for (int i = 0; i < arguments.length; i++) {
      arguments[i] = of.productElement(i);
      for (int n = 0; n < names.length; n++) {
        if (names[n].equals(of.productElementName(i))) {
          arguments[i] = values[n];
          replaced++;
        }
      }
    }
    if (replaced != names.length) {
      throw new NoSuchMethodException(of.getClass().getName() + " without " + names[0]);
    }
    return method(of.getClass(), "copy").invoke(of, arguments);
  }

  /**
   * Returns Spark's own factory of readers. Since 4.1 a source takes what was planned and makes its factory, whose
   * constructor wants more with every version; 4.0 has the constructor alone.
   */
  static PartitionReaderFactory readerFactory(
      RequestTable table, CaseInsensitiveStringMap options, PythonDataSourceReadInfo info, StructType output) {
    try {
      if (isFirst()) {
        Option artifacts = JobArtifactSet$.MODULE$.getCurrentJobArtifactState();
        Option uuid = artifacts.isEmpty() ? artifacts : Option.apply(((JobArtifactState) artifacts.get()).uuid());
        return (PartitionReaderFactory)
            PythonPartitionReaderFactory.class
                .getConstructors()[0]
                .newInstance(new Object[] {table.source.source(), info.func(), output, uuid});
      }
      PythonDataSourceV2 source = new PythonDataSourceV2();
      source.setShortName(table.name());
      method(PythonDataSourceV2.class, "setReadInfo").invoke(source, new Object[] {info});
      Table planned = source.getTable(output, new Transform[0], options);
      return ((SupportsRead) planned).newScanBuilder(options).build().toBatch().createReaderFactory();
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("Spark " + spark() + " has no such source: set " + PushDownRule.ENABLED + " to false", e);
    }
  }

  private static Method method(Class of, String name) throws NoSuchMethodException {
    Method[] methods = of.getMethods();
    for (int i = 0; i < methods.length; i++) {
      if (methods[i].getName().equals(name)) {
        return methods[i];
      }
    }
    throw new NoSuchMethodException(of.getName() + "." + name);
  }
}
