package org.lancespark;

import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileAttribute;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.MutableURLClassLoader;
import org.apache.spark.util.Utils;

/**
 * Adds the classes of this package to a server of Spark Connect, for all sessions, when a client
 * reads this source. The client sends it in a jar that has the jar of all other classes as a file.
 * A session of the server ends with its class loader, and the rules of Spark's optimizer, which
 * sessions share, must not.
 */
public class Installer implements RelationProvider {
  private static final String JAR = "/lance-spark-classes.jar";

  public BaseRelation createRelation(
      SQLContext context, scala.collection.immutable.Map parameters) {
    ClassLoader all = null;
    ClassLoader loader = Utils.getContextOrSparkClassLoader();
    for (; loader != null; loader = loader.getParent()) {
      if (loader instanceof MutableURLClassLoader) {
        all = loader;
      }
    }
    if (all == null) {
      throw new IllegalStateException("the class loader of the server takes no jars");
    }
    try {
      Path jar = Files.createTempFile("lance-spark-", ".jar", new FileAttribute[0]);
      jar.toFile().deleteOnExit();
      InputStream classes = Installer.class.getResourceAsStream(JAR);
      try {
        StandardCopyOption[] replacing = {StandardCopyOption.REPLACE_EXISTING};
        Files.copy(classes, jar, replacing);
      } finally {
        classes.close();
      }
      ((MutableURLClassLoader) all).addURL(jar.toUri().toURL());
    } catch (java.io.IOException e) {
      throw new IllegalStateException(e);
    }
    return new Installed(context);
  }

  public static class Installed extends BaseRelation {
    private final SQLContext context;

    Installed(SQLContext context) {
      this.context = context;
    }

    public SQLContext sqlContext() {
      return context;
    }

    public StructType schema() {
      return new StructType().add("installed", DataTypes.BooleanType);
    }
  }
}
