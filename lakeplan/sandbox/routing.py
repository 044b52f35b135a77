"""The routing table: (method, path pattern) → handler."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from lakeplan.sandbox.messages import Request, Response
from lakeplan.sandbox.service import Service

Handler = Callable[[Service, Request], Response]

API = "/api/v1"
_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Route:
    """``pattern`` is as in lakeFS's own API description: ``/repositories/{repository}/branches``."""

    method: str
    pattern: str
    handler: Handler
    public: bool = False

    @property
    def expression(self) -> re.Pattern[str]:
        return re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", self.pattern))


class Router:
    """Finds the route of a request. Parts of a path are percent-decoded after they were told apart."""

    def __init__(self, routes: Iterator[Route]) -> None:
        self._routes: dict[str, list[tuple[re.Pattern[str], Route]]] = {}
        for route in routes:
            self._routes.setdefault(route.method, []).append((route.expression, route))

    def find(self, method: str, raw_path: str) -> tuple[Route, dict[str, str]] | None:
        """The route and its parameters, or None when no route answers here."""
        if not raw_path.startswith(API):
            return None
        for expression, route in self._routes.get(method, ()):
            match = expression.fullmatch(raw_path[len(API) :])
            if match:
                return route, {name: unquote(part) for name, part in match.groupdict().items()}
        return None
