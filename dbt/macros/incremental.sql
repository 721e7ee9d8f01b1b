{# The statements of the strategies of incremental models. #}

{% macro incremental_strategy() %}
  {%- set strategy = config.get('incremental_strategy') or 'append' -%}
  {%- set strategies = ['append', 'merge', 'insert_overwrite', 'microbatch'] -%}
  {%- if strategy not in strategies -%}
    {% do exceptions.raise_compiler_error(
      'model ' ~ model.name ~ ': incremental_strategy must be one of ' ~ (strategies | join(', ')) ~ ', not ' ~ strategy
    ) %}
  {%- endif -%}
  {{ return(strategy) }}
{% endmacro %}


{# `columns` are the columns of the query, if the table was changed to have them; otherwise none. #}
{% macro incremental_sql(strategy, target, source, columns) %}
  {%- if strategy == 'merge' -%}
    {%- set predicates = config.get('predicates') or config.get('incremental_predicates') -%}
    {{ get_merge_sql(target, source, config.get('unique_key'), none, predicates) }}
  {%- else -%}
    {%- set of_table = adapter.get_columns_in_relation(target) -%}
    {%- set names = (columns or of_table) | map(attribute='quoted') | join(', ') -%}
    {%- if strategy == 'append' -%}
      insert into {{ target }} ({{ names }}) select {{ names }} from {{ source }}
    {%- elif strategy == 'insert_overwrite' -%}
      {%- set partitions = lance_spark.columns_of('partition_by') | join(',') -%}
      insert overwrite {{ target }}
      {%- if partitions %}
      with (partitionOverwriteMode = 'dynamic', partitionBy = {{ lance_spark.string_literal(partitions) }})
      {%- else %}
      with (partitionOverwriteMode = 'static')
      {%- endif %}
      ({{ names }}) select {{ names }} from {{ source }}
    {%- else -%}
      {%- set in_batch = lance_spark.condition_of_batch(of_table) -%}
      {# The statement has no list of columns: the query has those of the table, in their order. #}
      {%- set values = [] -%}
      {%- for column in of_table -%}
        {%- set is_missing = columns and column.name not in columns | map(attribute='name') -%}
        {%- do values.append(('null as ' if is_missing else '') ~ column.quoted) -%}
      {%- endfor -%}
      insert into {{ target }} replace where {{ in_batch }}
      select {{ values | join(', ') }} from {{ source }} where {{ in_batch }}
    {%- endif -%}
  {%- endif -%}
{% endmacro %}


{# The rows of a batch, by constants of the type of its column: bounds of another type would be compared
   in the time zone of the session. #}
{% macro condition_of_batch(columns) %}
  {%- set event_time = config.get('event_time') -%}
  {%- set types = {} -%}
  {%- for column in columns -%}
    {%- do types.update({column.name | lower: column.data_type | lower}) -%}
  {%- endfor -%}
  {%- set type = types.get(event_time | lower) -%}
  {%- if type not in ['date', 'timestamp', 'timestamp_ntz'] -%}
    {% do exceptions.raise_compiler_error(
      'model ' ~ model.name ~ ': event_time must name a column of the type date, timestamp or timestamp_ntz, not '
      ~ event_time ~ ' of the type ' ~ type
    ) %}
  {%- endif -%}
  {%- set conditions = [] -%}
  {%- for operator, bound in [('>=', model.batch.event_time_start), ('<', model.batch.event_time_end)] if bound -%}
    {%- set text = bound | string -%}
    {%- if type == 'date' -%}
      {%- set constant = "date '" ~ text[:10] ~ "'" -%}
    {%- elif type == 'timestamp_ntz' -%}
      {%- set constant = "timestamp_ntz '" ~ text[:19] ~ "'" -%}
    {%- else -%}
      {%- set constant = "timestamp '" ~ text ~ "'" -%}
    {%- endif -%}
    {%- do conditions.append(event_time ~ ' ' ~ operator ~ ' ' ~ constant) -%}
  {%- endfor -%}
  {{ return(conditions | join(' and ')) }}
{% endmacro %}
