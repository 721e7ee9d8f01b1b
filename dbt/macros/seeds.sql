{# The first rows of a seed replace the table in one statement: up to one batch of rows, a seed is one
   version, and the table is never empty between two statements. #}

{% macro spark__reset_csv_table(model, full_refresh, old_relation, agate_table) %}
  {%- if not lance_spark.is_lance_model() -%}
    {{ return(dbt.spark__reset_csv_table(model, full_refresh, old_relation, agate_table)) }}
  {%- endif -%}
  {% do lance_spark.make_place(old_relation) %}
  {{ return(create_csv_table(model, agate_table)) }}
{% endmacro %}


{% macro spark__create_csv_table(model, agate_table) %}
  {%- if not lance_spark.is_lance_model() -%}
    {{ return(dbt.spark__create_csv_table(model, agate_table)) }}
  {%- endif -%}
  {%- if agate_table.rows -%}
    {{ return('') }}
  {%- endif -%}
  {%- set definitions = [] -%}
  {%- for column in lance_spark.seed_columns(model, agate_table) -%}
    {%- do definitions.append(column.name ~ ' ' ~ column.type) -%}
  {%- endfor -%}
  {%- set sql -%}
    create or replace table {{ this.render() }} ({{ definitions | join(', ') }})
    {{ lance_spark.table_clauses() }}
  {%- endset -%}
  {% call statement('_') %}
    {{ sql }}
  {% endcall %}
  {{ return(sql) }}
{% endmacro %}


{% macro seed_columns(model, agate_table) %}
  {%- set types = model['config'].get('column_types', {}) -%}
  {%- set quotes = model['config'].get('quote_columns', none) -%}
  {%- set columns = [] -%}
  {%- for name in agate_table.column_names -%}
    {%- do columns.append({
      'name': adapter.quote_seed_column(name | string, quotes),
      'type': types.get(name, adapter.convert_type(agate_table, loop.index0)),
    }) -%}
  {%- endfor -%}
  {{ return(columns) }}
{% endmacro %}


{# Values are literals, not bindings: dbt-spark binds whole numbers as floats, null as 'None', and does
   not escape quotes. #}
{% macro spark__load_csv_rows(model, agate_table) %}
  {%- if not lance_spark.is_lance_model() -%}
    {{ return(dbt.spark__load_csv_rows(model, agate_table)) }}
  {%- endif -%}
  {%- set columns = lance_spark.seed_columns(model, agate_table) -%}
  {%- set names = columns | map(attribute='name') | join(', ') -%}
  {%- set statements = [] -%}
  {%- for chunk in agate_table.rows | batch(get_batch_size()) -%}
    {%- set rows = [] -%}
    {%- for row in chunk -%}
      {%- set values = [] -%}
      {%- for column in columns -%}
        {%- set value = row[loop.index0] -%}
        {%- set literal = 'null' if value is none else lance_spark.string_literal(value) -%}
        {%- do values.append('cast(' ~ literal ~ ' as ' ~ column.type ~ ')') -%}
      {%- endfor -%}
      {%- do rows.append('(' ~ (values | join(', ')) ~ ')') -%}
    {%- endfor -%}
    {%- set sql -%}
      {%- if loop.first -%}
        create or replace table {{ this.render() }}
        {{ lance_spark.table_clauses() }}
        as
      {%- else -%}
        insert into {{ this.render() }}
      {%- endif %}
      select * from values
      {{ rows | join(',\n      ') }}
      as seed({{ names }})
    {%- endset -%}
    {% do adapter.add_query(sql, abridge_sql_log=True) %}
    {%- if loop.first -%}
      {%- do statements.append(sql) -%}
    {%- endif -%}
  {%- endfor -%}
  {{ return(statements[0]) }}
{% endmacro %}
