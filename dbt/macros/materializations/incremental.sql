{% materialization incremental, adapter='spark', supported_languages=['sql', 'python'] %}
  {%- if not lance_spark.is_lance_model() -%}
    {{ return(dbt.materialization_incremental_spark()) }}
  {%- endif -%}
  {% do lance_spark.refuse_python() %}
  {%- set strategy = lance_spark.incremental_strategy() -%}
  {%- set on_schema_change = incremental_validate_on_schema_change(config.get('on_schema_change'), default='ignore') -%}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = lance_spark.as_lance_table(this) -%}
  {%- set replaces = existing is none or existing.is_view or should_full_refresh() -%}
  {%- if not replaces and not lance_spark.is_lance_table(existing) -%}
    {% do exceptions.raise_compiler_error(
      'model ' ~ model.name ~ ': the table ' ~ existing ~ ' is not a Lance table; replace it by dbt run --full-refresh'
    ) %}
  {%- endif -%}

  {{ run_hooks(pre_hooks) }}
  {% if replaces %}
    {% do lance_spark.replace_table(existing, target) %}
  {% else %}
    {%- set view = lance_spark.temporary_view_of(target) -%}
    {% call statement('create_temporary_view') %}
      {{ create_table_as(True, view, compiled_code) }}
    {% endcall %}
    {%- set columns = process_schema_changes(on_schema_change, view, target) -%}
    {% call statement('main') %}
      {{ lance_spark.incremental_sql(strategy, target, view, columns) }}
    {% endcall %}
    {% do lance_spark.drop_temporary_view(view) %}
  {% endif %}
  {% do apply_grants(target, config.get('grants'), should_revoke(existing, should_full_refresh())) %}
  {% do persist_docs(target, model) %}
  {{ run_hooks(post_hooks) }}

  {{ return({'relations': [target]}) }}
{% endmaterialization %}
