"""Documents as OpenMetrics text: one module per command, and one list of all families.

Every command has families of its own, so that files of several commands can lie in one folder of a textfile
collector. All are gauges: each file is what one run saw.
"""

from __future__ import annotations

from lakeplan.render.metrics.apply import apply_metrics
from lakeplan.render.metrics.drift import drift_metrics
from lakeplan.render.metrics.history import history_metrics
from lakeplan.render.metrics.lifecycle import lifecycle_plan_metrics, lifecycle_run_metrics
from lakeplan.render.metrics.plan import plan_metrics
from lakeplan.render.metrics.sweep import mark_list_metrics, mark_metrics, sweep_metrics

__all__ = [
    "apply_metrics",
    "drift_metrics",
    "history_metrics",
    "lifecycle_plan_metrics",
    "lifecycle_run_metrics",
    "mark_list_metrics",
    "mark_metrics",
    "plan_metrics",
    "sweep_metrics",
]
