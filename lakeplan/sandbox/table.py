"""Every route of a flavour, in one table."""

from __future__ import annotations

from lakeplan.sandbox.handlers import (
    branches,
    collection,
    commits,
    config,
    enterprise,
    listings,
    metadata,
    objects,
    repositories,
    settings,
    staging,
    tags,
)
from lakeplan.sandbox.routing import Route, Router
from lakeplan.sandbox.service import Flavor

_OPEN_SOURCE: tuple[Route, ...] = (
    *config.ROUTES,
    *repositories.ROUTES,
    *branches.ROUTES,
    *commits.ROUTES,
    *tags.ROUTES,
    *objects.ROUTES,
    *listings.ROUTES,
    *staging.ROUTES,
    *settings.ROUTES,
    *metadata.ROUTES,
    *collection.ROUTES,
)


def routes_of(flavor: Flavor) -> tuple[Route, ...]:
    """The routes that a server of this flavour answers."""
    return (*_OPEN_SOURCE, *enterprise.ROUTES) if flavor == "enterprise" else _OPEN_SOURCE


def router_of(flavor: Flavor) -> Router:
    return Router(iter(routes_of(flavor)))
