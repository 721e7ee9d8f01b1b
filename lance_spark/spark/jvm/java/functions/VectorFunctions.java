package org.lancespark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.V2ExpressionUtils;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.errors.QueryCompilationErrors$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SessionState;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.NullType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.collection.Seq;
import scala.collection.immutable.Nil$;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/**
 * The functions l2_distance, cosine_distance, dot_product and l2_normalize of arrays of numbers.
 *
 * <p>Items are floats or doubles, as they are stored. Other numbers are cast: to floats if the other
 * vector has floats, else to doubles.
 */
public class VectorFunctions extends AbstractFunction1 {
  /** The start of the names by which plans recognise these functions. */
  static final String PREFIX = "lance_spark.";

  /** The number of items of each vector of a column, in the metadata of its field. */
  private static final String VECTOR_SIZE = "arrow.fixed-size-list.size";

  private static final String NORMALIZE = "l2_normalize";

  private static final String[] NAMES = {
    VectorDistance.L2, VectorDistance.COSINE, VectorDistance.DOT, NORMALIZE
  };

  private final String name;

  private VectorFunctions(String name) {
    this.name = name;
  }

  /**
   * Adds the functions to a session as temporary functions, which a user can replace and drop. The
   * session keeps its own functions of these names.
   */
  static void addTo(SparkSession session) {
    SessionState state = session.sessionState();
    for (int i = 0; i < NAMES.length; i++) {
      if (!state.catalog().isTemporaryFunction(new FunctionIdentifier(NAMES[i]))) {
        state
            .functionRegistry()
            .createOrReplaceTempFunction(NAMES[i], new VectorFunctions(NAMES[i]), "scala_udf");
      }
    }
  }

  /** Returns the expression of a call. */
  public Object apply(Object expressions) {
    List arguments = new ArrayList(CollectionConverters.asJava((Seq) expressions));
    int wanted = name.equals(NORMALIZE) ? 1 : 2;
    if (arguments.size() != wanted) {
      List counts = Collections.singletonList(Integer.valueOf(wanted));
      Platform.throwException(
          QueryCompilationErrors$.MODULE$.wrongNumArgsError(
              name, CollectionConverters.asScala(counts).toSeq(), arguments.size(), "", "", ""));
    }
    String shown = shown(arguments);
    boolean hasDouble = false;
    boolean hasFloat = false;
    for (int i = 0; i < wanted; i++) {
      Expression argument = (Expression) arguments.get(i);
      DataType item = itemType(argument.dataType());
      if (item == null) {
        raiseWrongType(shown, i, argument);
      }
      hasDouble = hasDouble || item.equals(DataTypes.DoubleType);
      hasFloat = hasFloat || item.equals(DataTypes.FloatType);
    }
    DataType others = hasFloat && !hasDouble ? DataTypes.FloatType : DataTypes.DoubleType;
    boolean[] areFloats = new boolean[wanted];
    for (int i = 0; i < wanted; i++) {
      Expression argument = (Expression) arguments.get(i);
      DataType item = itemType(argument.dataType());
      if (!item.equals(DataTypes.FloatType) && !item.equals(DataTypes.DoubleType)) {
        item = others;
        DataType type = DataTypes.createArrayType(others, true);
        arguments.set(i, Cast$.MODULE$.apply(argument, type, SQLConf.get().ansiEnabled()));
      }
      areFloats[i] = item.equals(DataTypes.FloatType);
    }
    // Generated code of executors names the classes of the functions.
    ExecutorClasses.areAvailable();
    ScalarFunction function =
        wanted == 1
            ? (ScalarFunction) new UnitVector(name, areFloats[0])
            : (ScalarFunction) new VectorDistance(name, areFloats[0], areFloats[1]);
    Expression call =
        V2ExpressionUtils.resolveScalarFunction(
            function, CollectionConverters.asScala(arguments).toSeq());
    // The name of a column that is not named otherwise. Spark removes the alias elsewhere.
    return new Alias(
        call,
        shown,
        NamedExpression$.MODULE$.newExprId(),
        (scala.collection.immutable.Seq) Nil$.MODULE$,
        Option.empty(),
        (scala.collection.immutable.Seq) Nil$.MODULE$);
  }

  /** Returns the function of vectors that an expression calls; null for another expression. */
  static ScalarFunction called(Expression e) {
    if (!(e instanceof Invoke) || !(((Invoke) e).targetObject() instanceof Literal)) {
      return null;
    }
    Object function = ((Literal) ((Invoke) e).targetObject()).value();
    boolean isOurs = function instanceof VectorDistance || function instanceof UnitVector;
    return isOurs ? (ScalarFunction) function : null;
  }

  /**
   * Returns whether an expression calls a function of vectors, all of which are known to have the
   * same number of items. The function then raises no error.
   */
  static boolean hasOneLength(Expression e) {
    ScalarFunction function = called(e);
    if (!(function instanceof VectorDistance)) {
      return function != null;
    }
    Seq vectors = ((Invoke) e).arguments();
    long length = lengthOf((Expression) vectors.apply(0));
    return length >= 0 && length == lengthOf((Expression) vectors.apply(1));
  }

  /** Returns the number of items of all vectors of a column or a constant; -1 if not known. */
  private static long lengthOf(Expression vector) {
    if (vector instanceof Literal && ((Literal) vector).value() instanceof ArrayData) {
      return ((ArrayData) ((Literal) vector).value()).numElements();
    }
    if (!(vector instanceof AttributeReference)) {
      return -1;
    }
    Metadata metadata = ((AttributeReference) vector).metadata();
    try {
      return metadata.contains(VECTOR_SIZE) ? metadata.getLong(VECTOR_SIZE) : -1;
    } catch (ClassCastException e) {
      // A schema that a user gave has a text.
      return -1;
    }
  }

  /** Returns the text of a call, as Spark writes it for its own functions. */
  private String shown(List arguments) {
    StringBuilder text = new StringBuilder(name).append("(");
    for (int i = 0; i < arguments.size(); i++) {
      text.append(i == 0 ? "" : ", ").append(SparkRelease.pretty((Expression) arguments.get(i)));
    }
    return text.append(")").toString();
  }

  /** Returns the type of the items of an array of numbers; null for another type. */
  private static DataType itemType(DataType type) {
    DataType item = type instanceof ArrayType ? ((ArrayType) type).elementType() : type;
    boolean isNull = item instanceof NullType;
    return isNull || (item != type && item instanceof NumericType) ? item : null;
  }

  /** Raises Spark's error about an argument that is not an array of numbers. */
  private static void raiseWrongType(String call, int position, Expression argument) {
    Map parameters = new HashMap();
    parameters.put("sqlExpr", "\"" + call + "\"");
    parameters.put("paramIndex", position == 0 ? "first" : "second");
    parameters.put("requiredType", "\"ARRAY\" of numbers");
    parameters.put("inputSql", "\"" + SparkRelease.pretty(argument) + "\"");
    parameters.put("inputType", "\"" + argument.dataType().sql() + "\"");
    Platform.throwException(
        new AnalysisException(
            "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE",
            scala.collection.immutable.Map$.MODULE$.from(
                CollectionConverters.asScala(parameters))));
  }

  static DataType arrayOf(boolean floats) {
    return DataTypes.createArrayType(floats ? DataTypes.FloatType : DataTypes.DoubleType, true);
  }
}
