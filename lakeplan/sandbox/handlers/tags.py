"""Tags."""

from __future__ import annotations

from lakeplan.model.refs import Tag
from lakeplan.sandbox.messages import NO_CONTENT, Request, Response, json_response, paged
from lakeplan.sandbox.naming import check_tag_name
from lakeplan.sandbox.routing import Route
from lakeplan.sandbox.service import Service


def shown(tag: Tag) -> dict[str, object]:
    return {"commit_id": tag.commit_id, "id": tag.id}


def list_tags(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    return paged(request, [(tag.id, shown(tag)) for tag in service.records.tags(repository.id)])


def create_tag(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    body = request.object()
    name, ref = body.string("id"), body.string("ref")
    check_tag_name(name)
    tag = Tag(name, service.resolve(repository, ref).commit_id)
    service.records.add_tag(repository.id, tag)
    return json_response(201, shown(tag))


def get_tag(service: Service, request: Request) -> Response:
    repository = service.repository(request)
    return json_response(200, shown(service.records.tag(repository.id, request.params["tag"])))


def delete_tag(service: Service, request: Request) -> Response:
    repository = service.writable(request)
    service.records.drop_tag(repository.id, request.params["tag"])
    return NO_CONTENT


ROUTES = (
    Route("GET", "/repositories/{repository}/tags", list_tags),
    Route("POST", "/repositories/{repository}/tags", create_tag),
    Route("GET", "/repositories/{repository}/tags/{tag}", get_tag),
    Route("DELETE", "/repositories/{repository}/tags/{tag}", delete_tag),
)
