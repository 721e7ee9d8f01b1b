package org.lancespark;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkFiles;
import org.apache.spark.api.python.PythonUtils$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The programs and the modules of Python: of the driver, which plans, and of tasks.
 *
 * <p>Spark runs both with the program of the driver. Executors may not have it: an environment of
 * --archives is unpacked in their folders, and an image has its own. So tasks get the program that
 * the functions of a user get.
 */
final class Interpreters {
  private static final String DEFAULT = "python3";
  static final String PATH = "PYTHONPATH";
  private static volatile String sparkPath;

  private Interpreters() {}

  /** Returns the program for tasks. */
  static String ofTasks(SparkContext context) {
    String given = System.getProperty(Constants.TASKS_PYTHON);
    if (given == null) {
      given = setting(context, "spark.pyspark.python");
    }
    if (given == null) {
      given = System.getenv("PYSPARK_PYTHON");
    }
    if (given == null) {
      given = System.getenv("PYSPARK_DRIVER_PYTHON");
    }
    return given == null ? DEFAULT : given;
  }

  /**
   * Returns the program for steps of planning: the first that this machine has of those by which
   * spark-submit runs a driver in Python, or the program that has called `enable`.
   */
  static String ofDriver(SparkContext context) {
    String[] given = {
      setting(context, "spark.pyspark.driver.python"),
      setting(context, "spark.pyspark.python"),
      System.getenv("PYSPARK_DRIVER_PYTHON"),
      System.getenv("PYSPARK_PYTHON"),
      System.getProperty(Constants.DRIVER_PYTHON)
    };
    String first = null;
    for (int i = 0; i < given.length; i++) {
      if (given[i] != null && isFound(given[i])) {
        return given[i];
      }
      first = first == null ? given[i] : first;
    }
    return first == null ? DEFAULT : first;
  }

  private static String setting(SparkContext context, String name) {
    return context.getConf().get(name, null);
  }

  private static boolean isFound(String program) {
    String path = System.getenv("PATH");
    if (program.indexOf(File.separatorChar) >= 0 || path == null) {
      return new File(program).canExecute();
    }
    String[] folders = path.split(File.pathSeparator);
    for (int i = 0; i < folders.length; i++) {
      if (new File(folders[i], program).canExecute()) {
        return true;
      }
    }
    return false;
  }

  /** Returns the names of the archives of modules that the user has added, as by --py-files. */
  static List archives(SparkContext context) {
    List names = new ArrayList();
    Object[] files = CollectionConverters.asJava(context.listFiles()).toArray();
    for (int i = 0; i < files.length; i++) {
      String file = (String) files[i];
      if (file.endsWith(".zip") || file.endsWith(".egg")) {
        names.add(file.substring(file.lastIndexOf('/') + 1));
      }
    }
    return names;
  }

  /** Returns the PYTHONPATH of the driver's steps, with the archives of these names. */
  static String path(List archives) {
    List paths = new ArrayList();
    if (sparkPath == null) {
      // Spark searches its archives for it, and each scan of a query needs it.
      sparkPath = PythonUtils$.MODULE$.sparkPythonPath();
    }
    paths.add(sparkPath);
    paths.add(System.getenv(PATH) == null ? "" : System.getenv(PATH));
    Object[] names = archives.toArray();
    for (int i = 0; i < names.length; i++) {
      paths.add(SparkFiles.get((String) names[i]));
    }
    return PythonUtils$.MODULE$.mergePythonPaths(CollectionConverters.asScala(paths).toSeq());
  }

  /** Returns the version that a program of this machine prints, such as 3.12. */
  static String version(String program, String path) {
    String[] command = {program, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"};
    ProcessBuilder builder = new ProcessBuilder(Arrays.asList(command));
    builder.environment().put(PATH, path);
    builder.redirectError(ProcessBuilder.Redirect.INHERIT);
    try {
      InputStreamReader output = new InputStreamReader(builder.start().getInputStream(), "US-ASCII");
      BufferedReader lines = new BufferedReader(output);
      try {
        String version = lines.readLine();
        if (version != null) {
          return version.trim();
        }
      } finally {
        lines.close();
      }
    } catch (IOException e) {
      throw new IllegalStateException("the Python of the driver does not start: " + program, e);
    }
    throw new IllegalStateException("the Python of the driver prints no version: " + program);
  }
}
