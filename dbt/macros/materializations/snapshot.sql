{% materialization snapshot, adapter='spark' %}
  {%- if not lance_spark.is_lance_model() -%}
    {{ return(dbt.materialization_snapshot_spark()) }}
  {%- endif -%}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = lance_spark.as_lance_table(this) -%}
  {%- if existing is not none and not lance_spark.is_lance_table(existing) -%}
    {% do exceptions.raise_compiler_error(
      'snapshot ' ~ model.name ~ ': ' ~ existing ~ ' is not a Lance table; rename or drop it'
    ) %}
  {%- endif -%}
  {%- set strategy_macro = strategy_dispatch(config.get('strategy')) -%}
  {%- set strategy = strategy_macro(model, 'snapshotted_data', 'source_data', model['config'], existing is not none) -%}

  {{ run_hooks(pre_hooks) }}
  {% if existing is none %}
    {% call statement('main') %}
      {{ create_table_as(False, target, build_snapshot_table(strategy, model['compiled_code'])) }}
    {% endcall %}
  {% else %}
    {% do lance_spark.merge_snapshot(strategy, target) %}
  {% endif %}
  {% do apply_grants(target, config.get('grants'), should_revoke(existing, full_refresh_mode=False)) %}
  {% do persist_docs(target, model) %}
  {{ run_hooks(post_hooks) }}

  {{ return({'relations': [target]}) }}
{% endmaterialization %}


{# Adds columns that the query has and the snapshot lacks, closes rows that changed, and adds the new ones. #}
{% macro merge_snapshot(strategy, target) %}
  {%- set names = config.get('snapshot_table_column_names') or get_snapshot_table_column_names() -%}
  {% do adapter.valid_snapshot_target(target, names) %}
  {%- set view = lance_spark.temporary_view_of(target) -%}
  {% call statement('create_temporary_view') %}
    {{ create_table_as(True, view, snapshot_staging_table(strategy, model['compiled_code'], target)) }}
  {% endcall %}
  {% do adapter.expand_target_column_types(from_relation=view, to_relation=target) %}
  {%- set added = [] -%}
  {%- for column in adapter.get_missing_columns(view, target) -%}
    {%- if not column.name | lower == 'dbt_change_type' and not (column.name | lower).startswith('dbt_unique_key') -%}
      {%- do added.append(column) -%}
    {%- endif -%}
  {%- endfor -%}
  {% do alter_relation_add_remove_columns(target, added, none) %}
  {% call statement('main') %}
    {{ snapshot_merge_sql(target=target, source=view, insert_cols=[]) }}
  {% endcall %}
  {% do lance_spark.drop_temporary_view(view) %}
{% endmacro %}
