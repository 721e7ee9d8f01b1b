package org.lancespark;

/* since 4.2
import java.util.Arrays;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.trees.CurrentOrigin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsSchemaEvolution;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import scala.Option;
import scala.Tuple2;

// A table of the catalog in Spark 4.2 and later, which ask which differences between the query of a
// statement WITH SCHEMA EVOLUTION and the table become changes of the table.
public class EvolvingTable extends NamedTable implements SupportsSchemaEvolution {
  public EvolvingTable(LanceCatalog catalog, Identifier identifier, Map reply) {
    super(catalog, identifier, reply);
  }

  // Returns false for types that do not hold all values of the column. Spark then casts the values
  // of the query. Python refuses what else it cannot change.
  public boolean supportsColumnChange(TableChange.ColumnChange change) {
    if (!(change instanceof TableChange.UpdateColumnType)) {
      return true;
    }
    Option field =
        schema()
            .findNestedField(
                AssignedColumns.seq(Arrays.asList(change.fieldNames())),
                true,
                SQLConf.get().resolver(),
                CurrentOrigin.get());
    if (field.isEmpty()) {
      return true;
    }
    DataType old = ((StructField) ((Tuple2) field.get())._2()).dataType();
    DataType type = ((TableChange.UpdateColumnType) change).newDataType();
    if (old instanceof StringType && type instanceof StringType) {
      // The column keeps its collation, by which its values are compared.
      return false;
    }
    return Cast.canUpCast(old, type);
  }
}
since 4.2 */
