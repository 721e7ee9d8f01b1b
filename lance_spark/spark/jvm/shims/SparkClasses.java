package org.lancespark;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;

/**
 * Classes of Spark that are told apart by their names without the package: long lists, and classes
 * that some releases lack.
 *
 * <p>A name that Spark changes would be a class that is not known, and rules leave such to Spark.
 * `tests/spark/jvm/test_shims.py` finds it.
 */
final class SparkClasses {
  /** Expressions that raise no error. */
  static final Set SAFE_EXPRESSIONS =
      set(
          new String[] {
            "Alias", "And", "ArrayContains", "ArraysOverlap", "AtLeastNNonNulls", "Atan",
            "AttributeReference", "BitLength", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
            "BitwiseXor", "CaseWhen", "Cbrt", "Coalesce", "Collate", "ConcatWs", "Contains", "Cos",
            "CreateArray", "CreateNamedStruct", "DateAdd", "DateDiff", "DateSub", "DayOfMonth",
            "DayOfWeek", "DayOfYear", "DynamicPruningSubquery", "EndsWith", "EqualNullSafe",
            "EqualTo", "Exp", "GetJsonObject", "GetMapValue", "GetStructField", "GreaterThan",
            "GreaterThanOrEqual", "Greatest", "Hour", "If", "In", "InSet", "InSubquery", "IsNaN",
            "IsNotNull", "IsNull", "KnownFloatingPointNormalized", "KnownNotNull", "KnownNullable",
            "LastDay", "Least", "Length", "LessThan", "LessThanOrEqual", "Like", "LikeAll",
            "LikeAny", "Literal", "Log", "Log10", "Log2", "Lower", "MapKeys", "MapValues", "Md5",
            "Minute", "Month", "NormalizeNaNAndZero", "Not", "NotLikeAll", "NotLikeAny",
            "OctetLength", "Or", "Quarter", "ResolvedCollation", "ScalarSubquery", "Second", "Sha1",
            "Sha2", "Sin", "Size", "Sqrt", "StartsWith", "StringInstr", "StringLPad",
            "StringLocate", "StringRPad", "StringReplace", "StringTrim", "StringTrimLeft",
            "StringTrimRight", "Substring", "Tan", "TruncDate", "TruncTimestamp", "Upper",
            "WeekDay", "WeekOfYear", "XxHash64", "Year"
          });

  /** Arithmetic that raises an error if its result is out of range, or if it divides by zero. */
  static final Set ARITHMETIC =
      set(
          new String[] {
            "Add", "Divide", "IntegralDivide", "Multiply", "Pmod", "Remainder", "Subtract"
          });

  /** Arithmetic that divides. */
  static final Set DIVISIONS =
      set(
          new String[] {
            "Divide", "IntegralDivide", "Pmod", "Remainder"
          });

  /** Plans that hand the columns of their input on, and look at what their expressions name. */
  static final Set HANDING_ON =
      set(
          new String[] {
            "Aggregate", "Filter", "Generate", "GlobalLimit", "Join", "LocalLimit", "Offset",
            "RebalancePartitions", "Repartition", "RepartitionByExpression", "Sample", "Sort",
            "Tail", "Window", "WindowGroupLimit"
          });

  /** Plans whose work is that of their input. */
  static final Set STEPS =
      set(
          new String[] {
            "Filter", "Aggregate", "Sort", "GlobalLimit", "LocalLimit", "Join", "Union", "Window",
            "WindowGroupLimit", "Expand", "Repartition", "RepartitionByExpression"
          });

  /** RDDs of rows that a program has made, such as createDataFrame. */
  static final Set GIVEN_RDDS =
      set(
          new String[] {
            "ParallelCollectionRDD", "MapPartitionsRDD", "PythonRDD"
          });

  /** RDDs of rows that Spark has stored. */
  static final Set STORED_RDDS =
      set(
          new String[] {
            "MapPartitionsRDD", "LocalCheckpointRDD", "ReliableCheckpointRDD"
          });

  /** The type of a time of the day. */
  static final String TIME_TYPE = "TimeType";

  /** The clause REPLACE WHERE of an INSERT. */
  static final String REPLACE_WHERE = "InsertReplaceWhere";

  /** Functions of vectors. */
  static final String L2_DISTANCE = "VectorL2Distance";

  static final String COSINE_SIMILARITY = "VectorCosineSimilarity";
  static final String INNER_PRODUCT = "VectorInnerProduct";

  private SparkClasses() {}

  /** Returns the name of the class of an object. */
  static String of(Object object) {
    return object.getClass().getSimpleName();
  }

  private static Set set(String[] names) {
    return Collections.unmodifiableSet(new HashSet(Arrays.asList(names)));
  }
}
