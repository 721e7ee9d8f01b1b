{# dbt takes materializations of a package in place of its own only if the project says so. #}

{% materialization table, adapter='spark', supported_languages=['sql', 'python'] %}
  {{ return(lance_spark.materialization_table_spark()) }}
{% endmaterialization %}

{% materialization incremental, adapter='spark', supported_languages=['sql', 'python'] %}
  {{ return(lance_spark.materialization_incremental_spark()) }}
{% endmaterialization %}

{% materialization snapshot, adapter='spark' %}
  {{ return(lance_spark.materialization_snapshot_spark()) }}
{% endmaterialization %}
