{# dbt-spark returns the rows of DESCRIBE, in which dbt finds no names: rows of deletions in snapshots
   would have no values. #}
{% macro spark__get_columns_in_relation(relation) %}
  {%- if not lance_spark.is_lance_model() -%}
    {{ return(dbt.spark__get_columns_in_relation(relation)) }}
  {%- endif -%}
  {{ return(adapter.get_columns_in_relation(relation)) }}
{% endmacro %}


{% macro spark__alter_relation_add_remove_columns(relation, add_columns, remove_columns) %}
  {%- if not lance_spark.is_lance_model() -%}
    {{ return(dbt.spark__alter_relation_add_remove_columns(relation, add_columns, remove_columns)) }}
  {%- endif -%}
  {% if remove_columns %}
    {% do run_query(
      'alter table ' ~ relation ~ ' drop columns (' ~ (remove_columns | map(attribute='quoted') | join(', ')) ~ ')'
    ) %}
  {% endif %}
  {% if add_columns %}
    {%- set added = [] -%}
    {%- for column in add_columns -%}
      {%- do added.append(column.quoted ~ ' ' ~ column.data_type) -%}
    {%- endfor -%}
    {% do run_query('alter table ' ~ relation ~ ' add columns (' ~ (added | join(', ')) ~ ')') %}
  {% endif %}
{% endmacro %}


{# Comments of the table and its columns. A comment that the table has already makes no version. #}
{% macro spark__persist_docs(relation, model, for_relation, for_columns) %}
  {%- if not lance_spark.is_lance_model() -%}
    {{ return(dbt.spark__persist_docs(relation, model, for_relation, for_columns)) }}
  {%- endif -%}
  {%- set wants_relation = for_relation and config.persist_relation_docs() and model.description -%}
  {%- set wants_columns = for_columns and config.persist_column_docs() and model.columns -%}
  {%- if wants_relation or wants_columns -%}
    {%- set described = lance_spark.comments_of(relation) -%}
    {%- if wants_relation and described.table != model.description -%}
      {% do run_query('comment on table ' ~ relation ~ ' is ' ~ lance_spark.string_literal(model.description)) %}
    {%- endif -%}
    {%- if wants_columns -%}
      {% do lance_spark.comment_columns(relation, model.columns, described.columns) %}
    {%- endif -%}
  {%- endif -%}
{% endmacro %}


{% macro spark__alter_column_comment(relation, column_dict) %}
  {%- if not lance_spark.is_lance_model() -%}
    {{ return(dbt.spark__alter_column_comment(relation, column_dict)) }}
  {%- endif -%}
  {% do lance_spark.comment_columns(relation, column_dict, lance_spark.comments_of(relation).columns) %}
{% endmacro %}


{# Returns the comment of a table, and those of its columns by their names in lower case. #}
{% macro comments_of(relation) %}
  {%- set columns = {} -%}
  {%- set found = namespace(table='', in_columns=true) -%}
  {%- for row in run_query('describe extended ' ~ relation).rows -%}
    {%- set name = row[0] or '' -%}
    {%- if not name or name.startswith('#') -%}
      {%- set found.in_columns = false -%}
    {%- elif found.in_columns -%}
      {%- do columns.update({name | lower: {'name': name, 'comment': row[2] or ''}}) -%}
    {%- elif name == 'Comment' -%}
      {%- set found.table = row[1] or '' -%}
    {%- endif -%}
  {%- endfor -%}
  {{ return({'table': found.table, 'columns': columns}) }}
{% endmacro %}


{% macro comment_columns(relation, wanted, existing) %}
  {%- set changes = [] -%}
  {%- set missing = [] -%}
  {%- for name in wanted -%}
    {%- set column = existing.get(name | lower) -%}
    {%- set comment = wanted[name]['description'] or '' -%}
    {%- if column is none -%}
      {%- do missing.append(name) -%}
    {%- elif column.comment | string != comment -%}
      {%- do changes.append(adapter.quote(column.name) ~ ' comment ' ~ lance_spark.string_literal(comment)) -%}
    {%- endif -%}
  {%- endfor -%}
  {%- if missing -%}
    {% do exceptions.warn(
      relation ~ ': columns with a description were not found in the table: ' ~ (missing | join(', '))
    ) %}
  {%- endif -%}
  {%- if changes -%}
    {% do run_query('alter table ' ~ relation ~ ' alter column ' ~ (changes | join(', '))) %}
  {%- endif -%}
{% endmacro %}
