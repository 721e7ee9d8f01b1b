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
