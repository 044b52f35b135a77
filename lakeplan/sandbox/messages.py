"""HTTP requests and answers as handlers use them, lakeFS's errors, and the routes to handlers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from lakeplan.sandbox.service import Flavor, Service

MAX_PAGE = 1000
DEFAULT_PAGE = 100


class ApiError(Exception):
    """An answer that is an error: a status and ``{"message": …}``, as every lakeFS error is."""

    def __init__(self, status: int, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


def not_found(message: str = "not found") -> ApiError:
    return ApiError(404, message)


def bad_request(message: str) -> ApiError:
    return ApiError(400, message)


@contextmanager
def prefixed(prefix: str) -> Iterator[None]:
    """Puts ``prefix`` before the message of every ApiError that is raised inside."""
    try:
        yield
    except ApiError as error:
        raise ApiError(error.status, f"{prefix}: {error.message}") from None


@dataclass(frozen=True)
class Response:
    """An answer. ``headers`` are those besides Content-Length."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def json_response(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(status, body, {"Content-Type": "application/json", **(headers or {})})


def error_response(error: ApiError) -> Response:
    return json_response(error.status, {"message": error.message}, error.headers)


NO_CONTENT = Response(204)


@dataclass(frozen=True)
class Request:
    """A request. ``path`` is decoded, header names are in lower case. ``base_url`` is the URL by which the
    caller reached this server."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]
    body: bytes
    base_url: str

    def text(self, name: str, default: str = "") -> str:
        """A query parameter."""
        values = self.query.get(name)
        return values[0] if values else default

    def required(self, name: str) -> str:
        if name not in self.query:
            raise bad_request(f'parameter "{name}" in query has an error: value is required but missing')
        if not self.text(name):
            raise bad_request(f'parameter "{name}" in query has an error: empty value is not allowed')
        return self.text(name)

    def flag(self, name: str) -> bool:
        value = self.text(name, "false").lower()
        if value not in ("true", "false"):
            raise bad_request(f'parameter "{name}" in query has an error: value {value}: an invalid boolean')
        return value == "true"

    @property
    def amount(self) -> int:
        """The number of items on a page. 0 and less mean the maximum."""
        text = self.text("amount", str(DEFAULT_PAGE))
        try:
            value = int(text)
        except ValueError:
            message = f'parameter "amount" in query has an error: value {text}: an invalid integer'
            raise bad_request(message) from None
        if not -1 <= value <= MAX_PAGE:
            bound = f"at least {-1}" if value < 0 else f"at most {MAX_PAGE}"
            raise bad_request(f'parameter "amount" in query has an error: number must be {bound}')
        return value if value > 0 else MAX_PAGE

    def json(self, *, optional: bool = False) -> Any:
        """The body as JSON. With ``optional``, no body gives None."""
        if not self.body:
            if optional:
                return None
            raise bad_request("request body has an error: value is required but missing")
        content_type = self.headers.get("content-type", "").split(";")[0].strip()
        if content_type != "application/json":
            raise bad_request(
                f'request body has an error: header Content-Type has unexpected value "{content_type}"'
            )
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise bad_request(f"request body has an error: failed to decode request body: {error}") from None

    def object(self, *, optional: bool = False) -> Fields:
        value = self.json(optional=optional)
        if value is None and optional:
            value = {}
        if not isinstance(value, dict):
            raise bad_request("request body has an error: doesn't match schema: value must be an object")
        return Fields(value)


class Fields:
    """A JSON object of a body, checked field by field with lakeFS's wording."""

    def __init__(self, values: Mapping[str, Any], at: str = "") -> None:
        self._values = values
        self._at = at

    def fault(self, name: str, problem: str) -> ApiError:
        return bad_request(
            f'request body has an error: doesn\'t match schema: Error at "{self._at}/{name}": {problem}'
        )

    def _take(self, name: str, kind: type | tuple[type, ...], problem: str, default: Any) -> Any:
        if name not in self._values:
            if default is ...:
                raise self.fault(name, f'property "{name}" is missing')
            return default
        value = self._values[name]
        if value is None:
            raise self.fault(name, "Value is not nullable")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.fault(name, problem)
        return value

    def has(self, name: str) -> bool:
        return name in self._values

    def string(self, name: str, default: Any = ...) -> str:
        return str(self._take(name, str, "value must be a string", default))

    def matching(self, name: str, pattern: re.Pattern[str]) -> str:
        """The text of a field that must match the schema's regular expression."""
        value = self.string(name)
        if not pattern.fullmatch(value):
            raise self.fault(name, f'string doesn\'t match the regular expression "^{pattern.pattern}$"')
        return value

    def boolean(self, name: str) -> bool:
        return bool(self._take(name, bool, "value must be a boolean", False))

    def integer(self, name: str, default: Any = ...) -> int:
        value = int(self._take(name, int, "value must be an integer", default))
        if not -(2**63) <= value < 2**63:
            raise self.fault(name, "value must be an integer of 64 bits")
        return value

    def strings(self, name: str) -> list[str]:
        values = self._take(name, list, "value must be an array", ...)
        for place, value in enumerate(values):
            if not isinstance(value, str):
                raise self.fault(f"{name}/{place}", "value must be a string")
        return list(values)

    def mapping(self, name: str, default: Any = ...) -> dict[str, str]:
        values = self._take(name, dict, "value must be an object", default)
        for key, value in values.items():
            if not isinstance(value, str):
                raise self.fault(f"{name}/{key}", "value must be a string")
        return dict(values)

    def objects(self, name: str) -> list[Fields]:
        values = self._take(name, list, "value must be an array", ...)
        return [self._child(f"{name}/{place}", value) for place, value in enumerate(values)]

    def child(self, name: str) -> Fields:
        return self._child(name, self._take(name, dict, "value must be an object", ...))

    def _child(self, place: str, value: object) -> Fields:
        if not isinstance(value, dict):
            raise self.fault(place, "value must be an object")
        return Fields(value, f"{self._at}/{place}")


def page(results: Sequence[object], *, has_more: bool, next_offset: str) -> Response:
    """A page of a list, as every lakeFS list answers."""
    pagination = {
        "has_more": has_more,
        "max_per_page": MAX_PAGE,
        "next_offset": next_offset if has_more else "",
        "results": len(results),
    }
    return json_response(200, {"pagination": pagination, "results": list(results)})


def paged(request: Request, items: Sequence[tuple[str, object]]) -> Response:
    """A page of (offset, item) pairs that are sorted by offset: ``prefix``, ``after``, ``amount``."""
    prefix, after, amount = request.text("prefix"), request.text("after"), request.amount
    wanted = [(k, v) for k, v in items if k.startswith(prefix) and (not after or k > after)]
    chosen = wanted[:amount]
    return page(
        [item for _, item in chosen],
        has_more=len(wanted) > amount,
        next_offset=chosen[-1][0] if chosen else "",
    )


@dataclass(frozen=True)
class PathPage:
    """``names`` in order: paths, and common prefixes, which end in the delimiter."""

    names: tuple[str, ...]
    prefixes: frozenset[str]
    has_more: bool

    @property
    def next_offset(self) -> str:
        return self.names[-1] if self.names else ""


def page_of_paths(request: Request, paths: Iterable[str]) -> PathPage:
    """The page that a request asks for. ``paths`` come in lakeFS's order."""
    prefix, after = request.text("prefix"), request.text("after")
    delimiter, amount = request.text("delimiter"), request.amount
    names: list[str] = []
    prefixes: set[str] = set()
    for path in paths:
        if not path.startswith(prefix):
            continue
        name, is_prefix = _fold(path, prefix, delimiter)
        if (after and name <= after) or name in prefixes:
            continue
        if len(names) == amount:
            return PathPage(tuple(names), frozenset(prefixes), has_more=True)
        names.append(name)
        if is_prefix:
            prefixes.add(name)
    return PathPage(tuple(names), frozenset(prefixes), has_more=False)


def _fold(path: str, prefix: str, delimiter: str) -> tuple[str, bool]:
    if delimiter:
        end = path.find(delimiter, len(prefix))
        if end >= 0:
            return path[: end + len(delimiter)], True
    return path, False


REPOSITORY = re.compile(r"[a-z0-9][a-z0-9-]{2,62}")
_BRANCH = re.compile(r"\w[-\w]*", re.ASCII)
_TAG_FORBIDDEN = re.compile(r"\s|\.\.|/|@\{|\.lock$|^@$")


def check_repository_name(name: str) -> None:
    if not REPOSITORY.fullmatch(name):
        raise bad_request("argument repository: repository id: invalid value: validation error")


def check_branch_name(name: str) -> None:
    if not _BRANCH.fullmatch(name):
        raise bad_request(
            "argument branch: branch id: invalid value: validation error: branch id must consist of letters, "
            "digits, underscores and dashes, and cannot start with a dash"
        )


def check_tag_name(name: str) -> None:
    if not name or _TAG_FORBIDDEN.search(name):
        raise bad_request("argument tagID: tag id: invalid value: validation error")


_BOUNDARY = re.compile(r'boundary="?([^";]+)"?')
_NAME = re.compile(rb'\bname="([^"]*)"')
_TYPE = re.compile(rb"^content-type:\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)


def read_part(body: bytes, content_type: str, name: str) -> tuple[bytes, str]:
    """(bytes, content type) of the part with this name. The type is "" when the part has none.

    Raises ApiError 400 when there is no such part.
    """
    boundary = _BOUNDARY.search(content_type)
    if boundary:
        # Every delimiter is a line of its own; the first has no line before it.
        for part in (b"\r\n" + body).split(b"\r\n--" + boundary[1].encode())[1:]:
            head, separator, data = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
            match = _NAME.search(head)
            if separator and match and match[1].decode(errors="replace") == name:
                kind = _TYPE.search(head.replace(b"\r\n", b"\n"))
                return data, kind[1].decode(errors="replace") if kind else ""
    raise bad_request(f'request body has an error: no part "{name}" in the form')


Handler = Callable[..., Response]
"""Takes the service or the open repository, the request, and by name the other parts of the path."""

API = "/api/v1"
_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Route:
    """``pattern`` is as in lakeFS's own API description: ``/repositories/{repository}/branches``."""

    method: str
    pattern: str
    handler: Handler
    public: bool = False
    flavor: Flavor = "oss"

    @cached_property
    def expression(self) -> re.Pattern[str]:
        return re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", self.pattern))


ROUTES: list[Route] = []
"""All that the modules of handlers declare."""


def route(
    method: str, pattern: str, *, public: bool = False, flavor: Flavor = "oss"
) -> Callable[[Handler], Handler]:
    """Declares that a handler answers here, in both flavours or in Enterprise only. It takes the service."""

    def declare(handler: Handler) -> Handler:
        ROUTES.append(Route(method, pattern, handler, public, flavor))
        return handler

    return declare


def on_repository(
    method: str, path: str, flavor: Flavor = "oss", *, writes: bool = False
) -> Callable[[Handler], Handler]:
    """Declares that a handler answers for ``path`` of a repository. It takes the open repository. One that
    ``writes`` refuses a read-only repository."""

    def declare(handler: Handler) -> Handler:
        def answer(service: Service, request: Request, repository: str, **parts: str) -> Response:
            opened = service.open_to_write(repository) if writes else service.open(repository)
            return handler(opened, request, **parts)

        ROUTES.append(Route(method, f"/repositories/{{repository}}{path}", answer, flavor=flavor))
        return handler

    return declare


on_writable = partial(on_repository, writes=True)


def find_route(flavor: Flavor, method: str, raw_path: str) -> tuple[Route, dict[str, str]] | None:
    """The route of a request and its parameters, or None when no route answers here. A path is split into
    parts before these are percent-decoded."""
    if not raw_path.startswith(API):
        return None
    for route in ROUTES:
        if route.method == method and route.flavor in ("oss", flavor):
            match = route.expression.fullmatch(raw_path[len(API) :])
            if match:
                return route, {name: unquote(part) for name, part in match.groupdict().items()}
    return None
