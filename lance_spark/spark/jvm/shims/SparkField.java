package org.lancespark;

import scala.Product;

/**
 * Fields of Spark's case classes that are read or replaced by their names. The compiler confuses
 * methods that Scala compiles twice, and copy() differs between releases.
 *
 * <p>Each constant is a name; several classes have it. `tests/spark/jvm/spark_names.py` lists the
 * classes for each release.
 */
final class SparkField {
  static final SparkField ACCUMULATOR = new SparkField("accumulator");
  static final SparkField AGGREGATE_EXPRESSIONS = new SparkField("aggregateExpressions");
  static final SparkField APPROX = new SparkField("approx");
  static final SparkField ASSIGNMENTS = new SparkField("assignments");
  static final SparkField BRANCHES = new SparkField("branches");
  static final SparkField CHILD = new SparkField("child");
  static final SparkField COLS = new SparkField("cols");
  static final SparkField COND = new SparkField("cond");
  static final SparkField CONDITION = new SparkField("condition");
  static final SparkField DELETE_EXPR = new SparkField("deleteExpr");
  static final SparkField DIRECTION = new SparkField("direction");
  static final SparkField E = new SparkField("e");
  static final SparkField ELSE_VALUE = new SparkField("elseValue");
  static final SparkField ENV_VARS = new SparkField("envVars");
  static final SparkField FALSE_VALUE = new SparkField("falseValue");
  static final SparkField GROUP_FILTER_CONDITION = new SparkField("groupFilterCondition");
  static final SparkField GROUPING_EXPRESSIONS = new SparkField("groupingExpressions");
  static final SparkField HINT = new SparkField("hint");
  static final SparkField IGNORE_IF_EXISTS = new SparkField("ignoreIfExists");
  static final SparkField INPUT_QUERY = new SparkField("inputQuery");
  static final SparkField INPUT_SCHEMA = new SparkField("inputSchema");
  static final SparkField IS_SOURCE_ROW_PRESENT = new SparkField("isSourceRowPresent");
  static final SparkField IS_TARGET_ROW_PRESENT = new SparkField("isTargetRowPresent");
  static final SparkField JOIN_TYPE = new SparkField("joinType");
  static final SparkField KEY_GROUPED_PARTITIONING = new SparkField("keyGroupedPartitioning");
  static final SparkField LEFT = new SparkField("left");
  static final SparkField MATCHED_INSTRUCTIONS = new SparkField("matchedInstructions");
  static final SparkField MERGE_CONDITION = new SparkField("mergeCondition");
  static final SparkField MULTIPART_IDENTIFIER = new SparkField("multipartIdentifier");
  static final SparkField NOT_MATCHED_BY_SOURCE_INSTRUCTIONS = new SparkField("notMatchedBySourceInstructions");
  static final SparkField NOT_MATCHED_INSTRUCTIONS = new SparkField("notMatchedInstructions");
  static final SparkField NUM_RESULTS = new SparkField("numResults");
  static final SparkField OPTIONS = new SparkField("options");
  static final SparkField ORIGINAL_TABLE = new SparkField("originalTable");
  static final SparkField OTHER_OUTPUT = new SparkField("otherOutput");
  static final SparkField OUTPUT = new SparkField("output");
  static final SparkField OVERWRITE = new SparkField("overwrite");
  static final SparkField PARTITION_SPEC = new SparkField("partitionSpec");
  static final SparkField PLAN = new SparkField("plan");
  static final SparkField PREDICATE = new SparkField("predicate");
  static final SparkField PROJECTIONS = new SparkField("projections");
  static final SparkField PROJECT_LIST = new SparkField("projectList");
  static final SparkField PYTHON_EXEC = new SparkField("pythonExec");
  static final SparkField PYTHON_INCLUDES = new SparkField("pythonIncludes");
  static final SparkField PYTHON_VER = new SparkField("pythonVer");
  static final SparkField QUERY = new SparkField("query");
  static final SparkField RANKING_EXPRESSION = new SparkField("rankingExpression");
  static final SparkField RELATION = new SparkField("relation");
  static final SparkField REPLACE_CRITERIA_OPT = new SparkField("replaceCriteriaOpt");
  static final SparkField RIGHT = new SparkField("right");
  static final SparkField SCAN = new SparkField("scan");
  static final SparkField SINK = new SparkField("sink");
  static final SparkField TABLE = new SparkField("table");
  static final SparkField TABLE_ALIAS_OPT = new SparkField("tableAliasOpt");
  static final SparkField TARGET_TABLE = new SparkField("targetTable");
  static final SparkField TRUE_VALUE = new SparkField("trueValue");
  static final SparkField USER_SPECIFIED_COLS = new SparkField("userSpecifiedCols");
  static final SparkField WRITE_OPTIONS = new SparkField("writeOptions");

  private final String name;

  private SparkField(String name) {
    this.name = name;
  }

  /** Returns the value of the field of an object. */
  Object of(Object object) {
    Product product = (Product) object;
    int index = index(product);
    if (index < 0) {
      throw new IllegalStateException(product.getClass().getName() + " without " + name);
    }
    return product.productElement(index);
  }

  /** Returns whether an object has the field. */
  boolean isOf(Object object) {
    return index((Product) object) >= 0;
  }

  /** Returns the position of the field among those of an object, or -1. */
  int index(Product product) {
    for (int i = 0; i < product.productArity(); i++) {
      if (name.equals(product.productElementName(i))) {
        return i;
      }
    }
    return -1;
  }

  public String toString() {
    return name;
  }
}
