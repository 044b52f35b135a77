"""Deleting what a mark names, in parallel on Spark executors. A mark is made elsewhere (``simulation``):
between the two there is data, and a person's approval."""
