"""The nightly and weekly jobs as Airflow DAGs. Each task is one lakeplan command.

The commands read their variables from the worker's environment. Add others with `env=`.
"""

from datetime import datetime, timedelta, timezone

from airflow import DAG
from airflow.operators.bash import BashOperator

TREE = "/srv/retention"
METRICS = "/var/lib/node_exporter"

with DAG(
    "lakeplan_nightly",
    schedule="17 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    # No retries, because lakeplan itself retries requests where that can help.
    default_args={"retries": 0, "execution_timeout": timedelta(hours=6), "append_env": True},
):
    validate = BashOperator(task_id="validate", bash_command=f"lakeplan validate -C {TREE} -q")
    drift = BashOperator(
        task_id="drift",
        bash_command=(
            f"lakeplan drift -C {TREE} --no-progress -q"
            f" --format openmetrics --out {METRICS}/lakeplan_drift.prom"
        ),
    )
    plan = BashOperator(
        task_id="plan",
        bash_command=(
            f"lakeplan plan -C {TREE} --simulate all --backlog --no-progress -q"
            f" --format openmetrics --out {METRICS}/lakeplan_plan.prom"
        ),
    )
    validate >> drift >> plan

with DAG(
    "lakeplan_weekly",
    schedule="30 4 * * 0",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 0, "execution_timeout": timedelta(hours=12), "append_env": True},
):
    # Afterwards, a person inspects, approves and sweeps the mark: lakeplan sweep show, approve, run.
    BashOperator(task_id="mark", bash_command=f"lakeplan sweep mark -C {TREE} --no-progress -q")
