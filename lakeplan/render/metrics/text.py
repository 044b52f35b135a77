"""OpenMetrics text 1.0: families, samples, escaping.

A family whose unit is given has a name that ends in it; times are seconds since 1970. Of the rules in
https://prometheus.io/docs/specs/om/open_metrics_spec/ only what gauges need is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakeplan.render.clean import safe
from lakeplan.render.money import KEY

Json = Mapping[str, Any]
Owners = Callable[[str], str]
"""The owner of ``server/name``, "" when there is none: for documents that do not say."""

REPOSITORY = ("server", "repository", "owner")
"""The labels of whatever belongs to a repository."""


@dataclass(frozen=True)
class Family:
    """One gauge. ``command`` is the command whose documents have it."""

    name: str
    command: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        return next((unit for unit in ("seconds", "bytes") if self.name.endswith(f"_{unit}")), "")


class Exposition:
    """Samples by family, in the order in which families come up."""

    def __init__(self) -> None:
        self._samples: dict[Family, dict[tuple[str, ...], str]] = {}

    def add(self, family: Family, value: float | None, *labels: str | None) -> None:
        """One sample; none for an unknown value. ``labels`` are in the family's order."""
        if len(labels) != len(family.labels):
            raise ValueError(f"{family.name} has the labels {', '.join(family.labels)}, not {len(labels)}")
        if value is not None:
            shown = str(int(value)) if float(value).is_integer() else repr(float(value))
            self._samples.setdefault(family, {})[tuple(label or "" for label in labels)] = shown

    def at(self, family: Family, moment: str | None, *labels: str | None) -> None:
        """A sample of an ISO 8601 moment."""
        value = None if moment is None else datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
        self.add(family, value, *labels)

    def text(self) -> str:
        lines = []
        for family, samples in self._samples.items():
            lines.append(f"# TYPE {family.name} gauge")
            if family.unit:
                lines.append(f"# UNIT {family.name} {family.unit}")
            lines.append(f"# HELP {family.name} {escaped(family.help)}")
            lines += [f"{family.name}{_labels(family.labels, of)} {value}" for of, value in samples.items()]
        return "\n".join([*lines, "# EOF"]) + "\n"


def of_repository(key: str, owner: str | None) -> tuple[str, str, str]:
    """The values of ``REPOSITORY`` for ``server/name``; a bare name is a server."""
    server, _, name = key.partition("/")
    return server, name, owner or ""


def add_cost(made: Exposition, family: Family, part: Json, labels: tuple[str, str, str]) -> None:
    """The price of a repository's server, where the tree has one."""
    price = part.get(KEY)
    if price is not None:
        made.add(family, price["amount"], *labels, price["currency"])


def escaped(text: str) -> str:
    """As label values and help are written in the text."""
    plain = "\n".join(safe(line) for line in text.split("\n"))
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    pairs = ",".join(f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""
