"""Who runs the steps: threads of this process, or Spark."""

from lakeplan.model.runner import Choice
from lakeplan.simulation.runners.choice import Runner, Step
from lakeplan.simulation.runners.opening import AUTO, LOCAL, LOCAL_ENTRIES, SPARK, Runners, choose

__all__ = ["AUTO", "LOCAL", "LOCAL_ENTRIES", "SPARK", "Choice", "Runner", "Runners", "Step", "choose"]
