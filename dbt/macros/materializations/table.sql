{% materialization table, adapter='spark', supported_languages=['sql', 'python'] %}
  {%- if not lance_spark.is_lance_model() -%}
    {{ return(dbt.materialization_table_spark()) }}
  {%- endif -%}
  {% do lance_spark.refuse_python() %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = lance_spark.as_lance_table(this) -%}

  {{ run_hooks(pre_hooks) }}
  {% do lance_spark.replace_table(existing, target) %}
  {% do apply_grants(target, config.get('grants'), should_revoke(existing, full_refresh_mode=True)) %}
  {% do persist_docs(target, model) %}
  {{ run_hooks(post_hooks) }}

  {{ return({'relations': [target]}) }}
{% endmaterialization %}


{# Creates a table by the query of a model, or replaces it. #}
{% macro replace_table(existing, target) %}
  {% do lance_spark.check_that_constraints_can_be_added(model) %}
  {%- set sql = create_table_as(False, target, compiled_code) -%}
  {% do lance_spark.make_place(existing) %}
  {% call statement('main') %}
    {{ sql }}
  {% endcall %}
  {% do persist_constraints(target, model) %}
{% endmacro %}
