"""What Spark has to have for the classes in `lance_spark/spark/jvm/shims`.

On a new release of Spark, `tests/spark/jvm/test_shims.py` fails for the entries that it lacks, and
names the lines that use them.
"""

from __future__ import annotations

from dataclasses import dataclass

_SQL = "org.apache.spark.sql"
_PLANS = f"{_SQL}.catalyst.plans.logical"
_EXPRESSIONS = f"{_SQL}.catalyst.expressions"
_V2 = f"{_SQL}.execution.datasources.v2"
_INSERT = f"{_PLANS}.InsertIntoStatement"
_MERGE = f"{_PLANS}.MergeRows"
_FUNCTION = "org.apache.spark.api.python.SimplePythonFunction"
_WRITES = tuple(
    f"{_PLANS}.{name}"
    for name in (
        *("AppendData", "OverwriteByExpression", "OverwritePartitionsDynamic", "ReplaceData"),
        "WriteDelta",
    )
)


@dataclass(frozen=True)
class Since:
    """A class that releases before one lack."""

    release: tuple[int, int]
    name: str


_NEAREST = Since((4, 2), f"{_PLANS}.NearestByJoin")
_INSERT_ONLY = Since((4, 2), f"{_PLANS}.InsertOnlyMerge")

_CONSTRAINT = Since((4, 1), f"{_SQL}.connector.catalog.constraints.Constraint")

#: Case classes that have a field, by the constants of `SparkField.java`.
FIELDS: dict[str, tuple[str | Since, ...]] = {
    "ACCUMULATOR": (_FUNCTION,),
    "AGGREGATE_EXPRESSIONS": (f"{_PLANS}.Aggregate",),
    "APPROX": (_NEAREST,),
    "ASSIGNMENTS": (f"{_PLANS}.InsertAction", f"{_PLANS}.UpdateAction"),
    "BRANCHES": (f"{_EXPRESSIONS}.CaseWhen",),
    "CHILD": (*(_MERGE, f"{_PLANS}.Aggregate", f"{_PLANS}.MapInArrow", f"{_PLANS}.Project"),),
    "COLS": (Since((4, 2), f"{_PLANS}.InsertReplaceUsing"),),
    "COND": (Since((4, 2), f"{_PLANS}.InsertReplaceOn"),),
    "CONDITION": (
        f"{_PLANS}.DeleteFromTable",
        f"{_PLANS}.UpdateTable",
        f"{_PLANS}.WriteDelta",
    ),
    "DELETE_EXPR": (f"{_PLANS}.OverwriteByExpression",),
    "DIRECTION": (_NEAREST,),
    "E": (f"{_EXPRESSIONS}.OuterReference",),
    "ELSE_VALUE": (f"{_EXPRESSIONS}.CaseWhen",),
    "ENV_VARS": (_FUNCTION,),
    "FALSE_VALUE": (f"{_EXPRESSIONS}.If",),
    "GROUP_FILTER_CONDITION": (Since((4, 2), f"{_PLANS}.WriteDelta"),),
    "GROUPING_EXPRESSIONS": (f"{_PLANS}.Aggregate",),
    "HINT": (f"{_PLANS}.Join",),
    "IGNORE_IF_EXISTS": (f"{_PLANS}.CreateTableAsSelect",),
    "INPUT_QUERY": (f"{_SQL}.catalyst.streaming.WriteToStream",),
    "INPUT_SCHEMA": (f"{_V2}.python.PythonBatchWriterFactory",),
    "IS_SOURCE_ROW_PRESENT": (_MERGE,),
    "IS_TARGET_ROW_PRESENT": (_MERGE,),
    "JOIN_TYPE": (_NEAREST,),
    "KEY_GROUPED_PARTITIONING": (f"{_V2}.DataSourceV2ScanRelation",),
    "LEFT": (f"{_PLANS}.Join", f"{_PLANS}.LateralJoin", _NEAREST),
    "MATCHED_INSTRUCTIONS": (_MERGE,),
    "MERGE_CONDITION": (f"{_PLANS}.MergeIntoTable",),
    "MULTIPART_IDENTIFIER": (f"{_SQL}.catalyst.analysis.UnresolvedRelation",),
    "NOT_MATCHED_BY_SOURCE_INSTRUCTIONS": (_MERGE,),
    "NOT_MATCHED_INSTRUCTIONS": (_MERGE,),
    "NUM_RESULTS": (_NEAREST,),
    "OPTIONS": (f"{_V2}.DataSourceV2Relation",),
    "ORIGINAL_TABLE": (f"{_PLANS}.WriteDelta",),
    "OTHER_OUTPUT": (f"{_PLANS}.MergeRows$Split",),
    "OUTPUT": (
        f"{_PLANS}.MergeRows$Keep",
        f"{_PLANS}.MergeRows$Split",
        f"{_V2}.DataSourceV2Relation",
        f"{_V2}.DataSourceV2ScanRelation",
        f"{_SQL}.catalyst.streaming.StreamingRelationV2",
    ),
    "OVERWRITE": (_INSERT,),
    "PARTITION_SPEC": (_INSERT,),
    "PLAN": (f"{_EXPRESSIONS}.LateralSubquery",),
    "PREDICATE": (f"{_EXPRESSIONS}.If",),
    "PROJECTIONS": (f"{_PLANS}.Expand",),
    "PROJECT_LIST": (f"{_PLANS}.Project",),
    "PYTHON_EXEC": (_FUNCTION,),
    "PYTHON_INCLUDES": (_FUNCTION,),
    "PYTHON_VER": (_FUNCTION,),
    "QUERY": (*_WRITES, _INSERT_ONLY, _INSERT),
    "RANKING_EXPRESSION": (_NEAREST,),
    "RELATION": (f"{_SQL}.catalyst.analysis.RelationTimeTravel",),
    "REPLACE_CRITERIA_OPT": (Since((4, 2), _INSERT),),
    "RIGHT": (f"{_PLANS}.Join", f"{_PLANS}.LateralJoin", _NEAREST),
    "SCAN": (f"{_V2}.DataSourceV2ScanRelation",),
    "SINK": (f"{_SQL}.catalyst.streaming.WriteToStream",),
    "TABLE": (
        *(*_WRITES, _INSERT_ONLY, _INSERT, f"{_V2}.DataSourceV2Relation"),
        *(f"{_PLANS}.DeleteFromTable", f"{_PLANS}.UpdateTable"),
        f"{_SQL}.catalyst.streaming.StreamingRelationV2",
    ),
    "TABLE_ALIAS_OPT": (Since((4, 2), f"{_PLANS}.InsertReplaceOn"),),
    "TARGET_TABLE": (f"{_PLANS}.MergeIntoTable",),
    "TRUE_VALUE": (f"{_EXPRESSIONS}.If",),
    "USER_SPECIFIED_COLS": (_INSERT,),
    "WRITE_OPTIONS": (f"{_PLANS}.OverwriteByExpression",),
}

#: Packages in which the classes of `SparkClasses.java` are.
PACKAGES = (
    _EXPRESSIONS,
    _PLANS,
    "org.apache.spark.rdd",
    "org.apache.spark.api.python",
    f"{_SQL}.types",
    f"{_EXPRESSIONS}.objects",
    f"{_SQL}.catalyst.optimizer",
)
#: Those that releases before one lack.
LATER_CLASSES = {
    "TimeType": (4, 1),
    "VectorL2Distance": (4, 2),
    "VectorCosineSimilarity": (4, 2),
    "VectorInnerProduct": (4, 2),
    "InsertReplaceWhere": (4, 2),
}

#: Fields and methods that `SparkShims.java` finds by reflection: class, name, types of parameters.
MEMBERS: tuple[tuple[str | Since, str, tuple[str, ...] | None], ...] = (
    (f"{_V2}.python.PythonTable", "ds", None),
    (f"{_SQL}.internal.SessionState", "sqlParser", None),
    (
        f"{_SQL}.classic.Dataset",
        "localCheckpoint",
        ("boolean", "org.apache.spark.storage.StorageLevel"),
    ),
    (f"{_EXPRESSIONS}.Literal", "default", (f"{_SQL}.types.DataType",)),
    (f"{_SQL}.connector.catalog.ColumnDefaultValue", "getSql", ()),
    (_CONSTRAINT, "check", ("java.lang.String",)),
    (
        _CONSTRAINT,
        "primaryKey",
        ("java.lang.String", f"[L{_SQL}.connector.expressions.NamedReference;"),
    ),
)
#: Fields of the analyzer of a session, whose class has no name.
ANALYZER = (
    *("extendedResolutionRules", "hintResolutionRules", "postHocResolutionRules"),
    "extendedCheckRules",
)
