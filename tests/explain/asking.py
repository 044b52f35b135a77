"""Asks about many addresses at once, so that every range is read only once."""

from __future__ import annotations

from collections.abc import Sequence

from lakeplan.explain.documents import ObjectSubject
from lakeplan.explain.explain import Inquiry, World
from lakeplan.values.progress import Silent


def explain_addresses(world: World, addresses: Sequence[str]) -> list[ObjectSubject]:
    """The subjects of the addresses, each as ``explain`` shows it."""
    inquiry = Inquiry(world, Silent())
    return inquiry.subjects(inquiry.at_addresses(addresses))[0]
