{# Spark lists the tables of `lance.db` with the namespace `db`. dbt looks for them by the schema of
   the profile. #}
{% macro spark__list_relations_without_caching(schema_relation) %}
  {%- set tables = dbt.spark__list_relations_without_caching(schema_relation) -%}
  {%- if '.' not in schema_relation.schema -%}
    {{ return(tables) }}
  {%- endif -%}
  {%- set named = [] -%}
  {%- for table in tables if table[0] -%}
    {%- do named.append([schema_relation.schema, table[1], table[2], table[3]]) -%}
  {%- endfor -%}
  {{ return(named) }}
{% endmacro %}


{% macro refuse_view(relation) %}
  {%- if '.' in relation.schema and not relation.schema.startswith('spark_catalog.') -%}
    {% do exceptions.raise_compiler_error(
      'model ' ~ model.name ~ ': the catalog of ' ~ relation.schema
      ~ ' has no views; materialize the model as table, incremental or ephemeral'
    ) %}
  {%- endif -%}
{% endmacro %}


{% macro spark__create_view_as(relation, sql) %}
  {% do lance_spark.refuse_view(relation) %}
  {{ return(dbt.spark__create_view_as(relation, sql)) }}
{% endmacro %}


{# dbt drops the table that a view takes the name of before it makes the view. #}
{% macro spark__handle_existing_table(full_refresh, old_relation) %}
  {% do lance_spark.refuse_view(old_relation) %}
  {{ return(dbt.default__handle_existing_table(full_refresh, old_relation)) }}
{% endmacro %}
