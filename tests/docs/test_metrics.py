"""docs/metrics.md lists what the program writes."""

from __future__ import annotations

import os
import re
from pathlib import Path

from lakeplan.output.metrics import FAMILIES, table

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def it_has_the_table_of_the_code() -> None:
    text = PAGE.read_text()
    head = text[: text.index("| command |")]
    if os.environ.get("LAKEPLAN_REGENERATE_OUTPUT"):
        PAGE.write_text(head + table())
    assert PAGE.read_text() == head + table()


def it_names_metrics_that_there_are() -> None:
    text = PAGE.read_text()
    named = set(re.findall(r"lakeplan_\w+", text[: text.index("| command |")]))
    assert named - {"lakeplan_drift", "lakeplan_plan"} <= {f"lakeplan_{name}" for name in FAMILIES}
    assert "lakeplan_drift_cost_per_gb_month" in named
