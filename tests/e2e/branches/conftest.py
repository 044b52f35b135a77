"""A tree whose engine is lakeplan, on the sandbox, with time made to pass in the ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lakeplan.tree.schemas import load_schema

DAY = 86400


class Lake:
    """A world with one repository, ``analytics``. What a world has is here too."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.api, self.tree, self.folder, self.handle = world.api, world.tree, world.folder, world.handle
        self.write, self.lakeplan, self.name_again = world.write, world.lakeplan, world.name_again

    @property
    def ledger(self) -> Path:
        return self.tree / ".lakeplan" / "branches" / "prod" / "analytics.json"

    def policies(self, text: str, settings: str = "") -> None:
        """The tree's entry: these policies, and settings as they stand beside them."""
        settings = f", {settings[1:-1]}" if settings else ""
        self.write(
            "repositories/analytics.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n"
            f"    branch_lifecycle: {{policies: [{text}]{settings}}}\n",
        )

    def branches(self, command: str, *arguments: str) -> Any:
        """Runs one command and checks its JSON against the schema."""
        result = self.lakeplan("branches", command, "--format", "json", *arguments)
        if result.out:
            Draft202012Validator(load_schema("lifecycle")).validate(result.json)
        return result

    def grow_older(self, days: float) -> None:
        """Makes everything in the ledger this many days older."""
        ledger = json.loads(self.ledger.read_text())
        for record in (ledger, *ledger["branches"].values()):
            for key in {"began", "at", "first", "moved"} & record.keys():
                record[key] -= int(days * DAY)
        self.ledger.write_text(json.dumps(ledger))

    def observed(self, *branches: str, days: float = 4) -> None:
        """Branches that were observed for this long."""
        for branch in branches:
            self.api.branch("analytics", branch)
        assert self.branches("run").code == 0
        self.grow_older(days)

    def verdicts(self, *arguments: str) -> dict[str, tuple[str, str]]:
        (repository,) = self.branches("plan", "--no-simulate", *arguments).json["repositories"]
        return {b["branch_id"]: (b["verdict"], b["reason"]) for b in repository["branches"]}

    def live(self) -> set[str]:
        answer = self.api.call(
            "GET", "/repositories/analytics/branches", params={"show_hidden": "true", "amount": 1000}
        )
        return {b["id"] for b in answer["results"]}


@pytest.fixture
def lake(world: Any) -> Lake:
    """A lake with the engine lakeplan, whose policy deletes feature branches after three quiet days."""
    world.api.repository("analytics")
    world.age_repository("analytics")
    root = (world.tree / "lakeplan.yaml").read_text()
    world.write("lakeplan.yaml", root.replace("}}", ", branch_lifecycle: {engine: lakeplan}}}", 1))
    lake = Lake(world)
    lake.policies("{id: quiet, patterns: [feature-*], max_idle_age: 3d}")
    return lake
