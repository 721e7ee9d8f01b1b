{# What the other files of this package share. #}

{% macro is_lance_model() %}
  {{ return(model is defined and (config.get('file_format') or '') | lower == 'lance') }}
{% endmacro %}


{# dbt-spark would drop the table before it finds that it cannot run the model. #}
{% macro refuse_python() %}
  {% if model['language'] != 'sql' %}
    {% do exceptions.raise_compiler_error(
      'model ' ~ model.name ~ ': Python models cannot be Lance tables: dbt-spark runs them on Databricks only'
    ) %}
  {% endif %}
{% endmacro %}


{# dbt-spark keeps what Spark shows of a table, but knows only the formats of others by name. #}
{% macro is_lance_table(relation) %}
  {{ return(relation.is_table and 'Provider: lance' in (relation.information or '')) }}
{% endmacro %}


{# The relation of a model that is a Lance table now, as later nodes of the run find it. #}
{% macro as_lance_table(relation) %}
  {{ return(relation.incorporate(type='table', information='Provider: lance')) }}
{% endmacro %}


{# Drops what has the name of a model and cannot be replaced: a view, a table of another format. #}
{% macro make_place(existing) %}
  {% if existing is not none and not lance_spark.is_lance_table(existing) %}
    {% do adapter.drop_relation(existing) %}
  {% endif %}
{% endmacro %}


{# A temporary view: catalogs of Lance tables have no others. All models of a session share its
   temporary views, so the name has the schema, too. #}
{% macro temporary_view_of(relation) %}
  {%- set name = relation.schema | replace('.', '__') ~ '__' ~ relation.identifier ~ '__dbt_tmp' -%}
  {{ return(api.Relation.create(identifier=name, type='view')) }}
{% endmacro %}


{% macro drop_temporary_view(view) %}
  {% call statement('drop_temporary_view') %}
    drop view if exists {{ view }}
  {% endcall %}
{% endmacro %}


{% macro string_literal(text) %}
  {{ return("'" ~ (text | string | replace('\\', '\\\\') | replace("'", "\\'")) ~ "'") }}
{% endmacro %}


{# A setting that names one column, or a list of columns, as a list. #}
{% macro columns_of(setting) %}
  {%- set columns = config.get(setting) or [] -%}
  {{ return([columns] if columns is string else columns) }}
{% endmacro %}
