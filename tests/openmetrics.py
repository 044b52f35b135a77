"""Reads OpenMetrics text with the strict parser of the Prometheus client, for tests of every command."""

from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Metric → label values in the order written → value. Raises ValueError for what is no OpenMetrics."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, f"{family.name} has no help"
        for sample in family.samples:
            labels = tuple(sample.labels.values())
            assert labels not in found.setdefault(sample.name, {}), f"{sample.name}{labels} is there twice"
            found[sample.name][labels] = float(sample.value)
    return found
