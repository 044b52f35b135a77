"""Branch lifecycle by lakeplan itself: survey, plan, run, undo, and the service that runs on a schedule."""
