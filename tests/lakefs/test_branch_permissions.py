"""Which permission is missing when a server refuses what branch lifecycle needs (branch-lifecycle.md)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakeplan.errors import PermissionDenied
from lakeplan.lakefs.client import LakeFSBranchReader, LakeFSServer
from lakeplan.lakefs.credentials import Credentials
from lakeplan.lakefs.writers import LakeFSBranchWriter, LakeFSSettingsWriter
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import Policy, SettingKind
from tests.lakefs.conftest import Answer, Scripted

POLICIES = SettingKind.BRANCH_LIFECYCLE
POLICY = Policy("a", ("x",), 60)


@pytest.fixture
def refusing(scripted: Scripted, credentials: Credentials) -> tuple[Scripted, Credentials]:
    scripted.script = [Answer(403, {"message": "insufficient permissions"})]
    return scripted, credentials


def missing(call: Callable[[], object]) -> str:
    with pytest.raises(PermissionDenied) as caught:
        call()
    return caught.value.message


def it_names_the_permission_to_read_policies(refusing: tuple[Scripted, Credentials]) -> None:
    scripted, credentials = refusing
    server = LakeFSServer.connect(scripted.config(), credentials)
    assert "branches:GetBranchLifecyclePolicies" in missing(lambda: server.get_policies("r"))


def it_names_the_permission_to_set_policies(refusing: tuple[Scripted, Credentials]) -> None:
    scripted, credentials = refusing
    writer = LakeFSSettingsWriter.connect(scripted.config(), credentials)
    for call in (
        lambda: writer.set_items("r", POLICIES, [POLICY], if_match=""),
        lambda: writer.delete_items("r", POLICIES),
    ):
        assert "branches:SetBranchLifecyclePolicies" in missing(call)
    assert writer.can_set("r", POLICIES) is False


def it_names_the_permission_to_delete_a_branch(refusing: tuple[Scripted, Credentials]) -> None:
    scripted, credentials = refusing
    writer = LakeFSBranchWriter.connect(scripted.config(), credentials)
    assert "fs:DeleteBranch" in missing(lambda: writer.delete_branch("r", "feature-1"))
    commit = {"id": "c", "creation_date": 1, "meta_range_id": "", "parents": []}
    scripted.script = [Answer(200, commit), *scripted.script]
    assert "fs:CreateBranch" in missing(lambda: writer.create_branch("r", LiveBranch("feature-1", "c")))


def it_names_the_permission_to_list_pull_requests(refusing: tuple[Scripted, Credentials]) -> None:
    scripted, credentials = refusing
    reader = LakeFSBranchReader.connect(scripted.config(), credentials)
    assert "pr:ListPullRequests" in missing(lambda: list(reader.open_pulls("r")))
