"""Pull requests, as far as retention reads them."""

from __future__ import annotations


def it_lists_none_at_first(repo):
    assert repo.get("/pulls").json()["results"] == []


def it_lists_open_ones_with_their_branches(repo):
    repo.branch("dev")
    body = {"title": "hello", "source_branch": "dev", "destination_branch": "main"}
    made = repo.post("/pulls", body)
    assert made.status_code == 201
    (pull,) = repo.get("/pulls").json()["results"]
    assert pull["id"] == made.json()["id"]
    assert (pull["status"], pull["title"]) == ("open", "hello")
    assert (pull["source_branch"], pull["destination_branch"]) == ("dev", "main")
    assert [p["id"] for p in repo.get("/pulls", status="all").json()["results"]] == [pull["id"]]
    assert repo.get("/pulls", status="closed").json()["results"] == []


def it_keeps_one_open_when_its_source_is_deleted(repo):
    repo.branch("dev")
    body = {"title": "hello", "source_branch": "dev", "destination_branch": "main"}
    assert repo.post("/pulls", body).status_code == 201
    assert repo.delete("/branches/dev").status_code == 204
    assert [p["status"] for p in repo.get("/pulls").json()["results"]] == ["open"]


def it_needs_branches_that_are_there(repo):
    body = {"title": "hello", "source_branch": "main", "destination_branch": "nothing"}
    assert repo.post("/pulls", body).status_code == 404
