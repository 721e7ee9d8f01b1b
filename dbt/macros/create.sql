{# Creates or replaces the table: versions, tags, comments and properties of an existing table stay. #}
{% macro spark__create_table_as(temporary, relation, compiled_code, language='sql') %}
  {%- if temporary or language != 'sql' or not lance_spark.is_lance_model() -%}
    {{ return(dbt.spark__create_table_as(temporary, relation, compiled_code, language)) }}
  {%- endif -%}
  {%- set query = compiled_code -%}
  {%- if config.get('contract').enforced -%}
    {%- do get_assert_columns_equivalent(compiled_code) -%}
    {%- set query = get_select_subquery(compiled_code) -%}
  {%- endif -%}
  create or replace table {{ relation }}
  {{ lance_spark.table_clauses() }}
  as
  {{ query }}
{% endmacro %}


{% macro table_clauses() %}
  {%- if config.get('clustered_by') or config.get('buckets') -%}
    {% do exceptions.raise_compiler_error(
      "model " ~ model.name ~ ": Lance tables have no buckets; remove clustered_by and buckets"
    ) %}
  {%- endif -%}
  {%- set properties = dict(config.get('tblproperties') or {}) -%}
  {%- set partitions = lance_spark.columns_of('partition_by') -%}
  {%- if partitions -%}
    {# A Lance table has no partition folders: the property names the columns that overwrites compare. #}
    {%- do properties.update({'partitionBy': partitions | join(',')}) -%}
  {%- endif -%}
  using lance
  {{ options_clause() }}
  {%- if properties %}
  tblproperties (
    {%- for name, value in properties.items() %}
    {{ lance_spark.string_literal(name) }} = {{ lance_spark.string_literal(value) }}
    {{- ',' if not loop.last }}
    {%- endfor %}
  )
  {%- endif %}
  {{ location_clause() }}
  {%- if config.persist_relation_docs() and model.description %}
  comment {{ lance_spark.string_literal(model.description) }}
  {%- endif -%}
{% endmacro %}
