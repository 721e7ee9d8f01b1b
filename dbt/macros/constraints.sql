{# The conditions of an enforced contract, as [name, condition]: CHECK of the model and of columns,
   and NOT NULL, because a table that a query creates has no columns that are NOT NULL. #}
{% macro checks_of(model) %}
  {%- set checks = [] -%}
  {%- if config.get('contract').enforced -%}
    {%- for constraint in model.constraints or [] -%}
      {%- do lance_spark.add_check(checks, constraint, none) -%}
    {%- endfor -%}
    {%- for name, column in model.columns.items() -%}
      {%- set quoted = adapter.quote(name) if column.get('quote') else name -%}
      {%- for constraint in column.constraints or [] -%}
        {%- do lance_spark.add_check(checks, constraint, quoted) -%}
      {%- endfor -%}
    {%- endfor -%}
  {%- endif -%}
  {{ return(checks) }}
{% endmacro %}


{% macro add_check(checks, constraint, column) %}
  {%- set type = constraint.type | string -%}
  {%- set conditions = [] -%}
  {%- if type == 'check' and constraint.expression -%}
    {%- do conditions.append(constraint.expression) -%}
  {%- elif type == 'not_null' -%}
    {%- for name in ([column] if column else constraint.columns) -%}
      {%- do conditions.append(name ~ ' is not null') -%}
    {%- endfor -%}
  {%- else -%}
    {% do exceptions.warn(
      'model ' ~ model.name ~ ': constraints of the type ' ~ type ~ ' are not created in Lance tables; use a data test'
    ) %}
  {%- endif -%}
  {%- for condition in conditions -%}
    {%- set named = constraint.name and conditions | length == 1 -%}
    {%- set name = constraint.name if named else 'dbt_' ~ local_md5(condition)[:12] -%}
    {%- do checks.append([name, condition]) -%}
  {%- endfor -%}
{% endmacro %}


{# Refuses before a table is replaced what fails after it. #}
{% macro check_that_constraints_can_be_added(model) %}
  {%- if lance_spark.checks_of(model) -%}
    {%- set version = run_query('select version()').rows[0][0].split('.') -%}
    {%- if version[0] | int == 4 and version[1] | int < 1 -%}
      {% do exceptions.raise_compiler_error(
        'model ' ~ model.name ~ ': constraints need Spark 4.1 or newer; remove them, or use data tests'
      ) %}
    {%- endif -%}
  {%- endif -%}
{% endmacro %}


{% macro spark__persist_constraints(relation, model) %}
  {%- if not lance_spark.is_lance_model() -%}
    {{ return(dbt.spark__persist_constraints(relation, model)) }}
  {%- endif -%}
  {%- for check in lance_spark.checks_of(model) -%}
    {% do run_query('alter table ' ~ relation ~ ' add constraint ' ~ check[0] ~ ' check (' ~ check[1] ~ ')') %}
  {%- endfor -%}
{% endmacro %}
