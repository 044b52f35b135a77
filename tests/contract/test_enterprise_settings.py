"""Policies and object rules of the Enterprise flavour, held against the models of its public SDK."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from types import ModuleType

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.errors import (
    FeatureMissing,
    PreconditionFailed,
    RepositoryNotFound,
    ServerError,
    UnexpectedAnswer,
)
from lakeplan.lakefs.client import LakeFSServer
from lakeplan.lakefs.credentials import Credentials, Secret
from lakeplan.lakefs.transport import RetryPolicy
from lakeplan.lakefs.writers import LakeFSSettingsWriter
from lakeplan.sandbox.service import Options
from lakeplan.values.desired import ObjectRule, Policy, ServerConfig, SettingKind, item_body
from tests.lakefs.conftest import Answer, Scripted
from tests.sandboxes import SandboxHandle, start_sandbox

POLICIES = "/settings/branch_lifecycle/policies"
OBJECTS = "/settings/object_lifecycle"
BRANCHES, RULES = SettingKind.BRANCH_LIFECYCLE, SettingKind.OBJECT_LIFECYCLE

SECONDS = st.none() | st.integers(1, 36500 * 86400)
NAMES = st.lists(st.text("abc*?-", min_size=1, max_size=6), min_size=1, max_size=3).map(tuple)
POLICY = st.builds(
    Policy,
    id=st.none() | st.text("abc-", min_size=1, max_size=32),
    patterns=NAMES,
    max_age_seconds=SECONDS,
    max_idle_seconds=st.integers(1, 10**9),
    description=st.text(max_size=5),
)
RULE = st.builds(
    ObjectRule,
    id=st.from_regex(r"[a-z0-9][a-z0-9-]{0,63}", fullmatch=True),
    branches=NAMES,
    prefix=st.sampled_from(["", "raw/", "a/b/"]),
    expire_after_days=st.integers(1, 36500),
    description=st.text(max_size=5),
)


def sdk() -> ModuleType:
    """The models. They take a second to import: only these tests pay."""
    import lakefs_enterprise_sdk

    return lakefs_enterprise_sdk


class DescribePayloads:
    @given(st.lists(POLICY, max_size=3))
    def it_sends_policies_as_the_sdk_models_them(self, policies: list[Policy]) -> None:
        body = {"policies": [item_body(policy) for policy in policies]}
        assert sdk().LifecyclePolicies.from_dict(body).to_dict() == body

    @given(st.lists(RULE, max_size=3))
    def it_sends_object_rules_as_the_sdk_models_them(self, rules: list[ObjectRule]) -> None:
        body = {"rules": [item_body(rule) for rule in rules]}
        assert sdk().ObjectLifecycleRules.from_dict(body).to_dict() == body


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxHandle]:
    with start_sandbox(tmp_path_factory.mktemp("ee"), options=Options(flavor="enterprise")) as handle:
        yield handle


class Here:
    """A repository with lakeplan's reader and writer, and with raw requests."""

    def __init__(self, handle: SandboxHandle, name: str) -> None:
        config = ServerConfig("prod", handle.endpoint_url)
        credentials = Credentials(Secret(handle.access_key_id), Secret(handle.secret_access_key))
        once = RetryPolicy(tries=1)
        self.reader = LakeFSServer.connect(config, credentials, retries=once)
        self.writer = LakeFSSettingsWriter.connect(config, credentials, retries=once)
        self.name = name
        self._root = f"{handle.endpoint_url}/api/v1"
        self._session = requests.Session()
        self._session.auth = (handle.access_key_id, handle.secret_access_key)
        body = {"name": name, "storage_namespace": f"local://{name}", "default_branch": "main"}
        self._session.post(f"{self._root}/repositories", json=body, timeout=30)

    def call(self, method: str, path: str, **more):
        url = f"{self._root}/repositories/{self.name}{path}"
        return self._session.request(method, url, timeout=30, **more)


@pytest.fixture
def here(sandbox: SandboxHandle) -> Here:
    return Here(sandbox, f"r{uuid.uuid4().hex[:16]}")


FEATURES = Policy(None, ("feature-*", "wip-*"), 604800, 259200, "quiet feature branches")
OLD = Policy("old", ("old",), 86400)
RAW = ObjectRule("raw-90d", ("main",), "raw/", 90)


class DescribePolicies:
    def it_reads_nothing_as_nothing(self, here: Here) -> None:
        stored = here.reader.get_policies(here.name)
        assert (stored.items, stored.etag) == (None, "")

    def it_reads_back_what_it_wrote_with_the_ids_of_the_server(self, here: Here) -> None:
        here.writer.set_items(here.name, BRANCHES, [FEATURES, OLD], if_match="")
        stored = here.reader.get_policies(here.name)
        assert stored.items is not None
        first, second = stored.items
        assert first.id is not None
        assert first == Policy(first.id, *(getattr(FEATURES, f) for f in list(vars(FEATURES))[1:]))
        assert second == OLD
        assert stored.etag

    def it_answers_as_the_sdk_models_it(self, here: Here) -> None:
        body = {"policies": [item_body(FEATURES), item_body(OLD)]}
        for answer in (here.call("PUT", POLICIES, json=body), here.call("GET", POLICIES)):
            assert answer.status_code == 200
            assert sdk().LifecyclePolicies.from_dict(answer.json()).to_dict() == answer.json()
            assert answer.headers["ETag"]

    def it_refuses_another_etag(self, here: Here) -> None:
        here.writer.set_items(here.name, BRANCHES, [OLD], if_match="")
        etag = here.reader.get_policies(here.name).etag
        here.writer.set_items(here.name, BRANCHES, [FEATURES], if_match=etag)
        with pytest.raises(PreconditionFailed) as caught:
            here.writer.set_items(here.name, BRANCHES, [OLD], if_match=etag)
        assert caught.value.exit_code == 5
        stored = here.reader.get_policies(here.name).items
        assert stored is not None
        assert [p.patterns for p in stored] == [FEATURES.patterns]

    def it_removes_them_as_often_as_asked(self, here: Here) -> None:
        here.writer.set_items(here.name, BRANCHES, [OLD], if_match="")
        for _ in range(2):
            here.writer.delete_items(here.name, BRANCHES)
            assert here.reader.get_policies(here.name).items is None

    @pytest.mark.parametrize(
        "policy",
        [
            {"name_patterns": [], "max_age": 1},
            {"name_patterns": ["a"]},
            {"name_patterns": ["a"], "max_age": 0},
            {"name_patterns": ["m*"], "max_age": 1},
            {"id": "x" * 33, "name_patterns": ["a"], "max_age": 1},
            {"id": "a b", "name_patterns": ["a"], "max_age": 1},
        ],
    )
    def it_is_refused_what_is_documented_as_wrong(self, here: Here, policy: dict) -> None:
        assert here.call("PUT", POLICIES, json={"policies": [policy]}).status_code == 400

    def it_may_set_them(self, here: Here) -> None:
        assert here.writer.can_set(here.name, BRANCHES)

    def it_knows_a_missing_repository_from_missing_policies(self, here: Here) -> None:
        with pytest.raises(RepositoryNotFound):
            here.reader.get_policies("no-such-repository")


class DescribeObjectRules:
    def it_reads_nothing_as_nothing(self, here: Here) -> None:
        assert here.reader.get_object_rules(here.name).items is None

    def it_reads_back_what_it_wrote(self, here: Here) -> None:
        here.writer.set_items(here.name, RULES, [RAW], if_match="")
        stored = here.reader.get_object_rules(here.name)
        assert stored.items == (RAW,)
        answer = here.call("GET", OBJECTS).json()
        assert sdk().ObjectLifecycleRules.from_dict(answer).to_dict() == answer
        with pytest.raises(PreconditionFailed):
            here.writer.set_items(here.name, RULES, [], if_match="another")
        here.writer.set_items(here.name, RULES, [RAW], if_match=stored.etag)
        here.writer.delete_items(here.name, RULES)
        assert here.reader.get_object_rules(here.name).items is None

    def it_gets_no_body_back(self, here: Here) -> None:
        answer = here.call("PUT", OBJECTS, json={"rules": [item_body(RAW)]})
        assert (answer.status_code, answer.content) == (204, b"")

    @pytest.mark.parametrize(
        "change",
        [{"id": "Raw"}, {"id": "x" * 65}, {"branches": []}, {"prefix": "raw"}, {"expire_after_days": 0}],
    )
    def it_is_refused_what_is_documented_as_wrong(self, here: Here, change: dict) -> None:
        body = {"rules": [item_body(RAW) | change]}
        assert here.call("PUT", OBJECTS, json=body).status_code == 400


class DescribeBranches:
    def it_lists_creation_and_last_write_as_the_sdk_models_them(self, here: Here) -> None:
        (row,) = here.call("GET", "/branches").json()["results"]
        assert sdk().Ref.from_dict(row).to_dict() == row
        (branch,) = here.reader.list_branches(here.name)
        assert (branch.creation_date, branch.update_date) == (row["creation_date"], row["update_date"])
        assert branch.creation_date is not None


class DescribeOpenSource:
    def it_never_takes_a_server_without_the_feature_for_one_without_policies(self, repo) -> None:
        config = ServerConfig("prod", repo.server.url)
        credentials = Credentials(*(Secret(text) for text in repo.server.auth))
        reader, writer = (
            LakeFSServer.connect(config, credentials),
            LakeFSSettingsWriter.connect(config, credentials),
        )
        for ask in (
            lambda: reader.get_policies(repo.name),
            lambda: reader.get_object_rules(repo.name),
            lambda: writer.set_items(repo.name, BRANCHES, [OLD], if_match=""),
            lambda: writer.can_set(repo.name, BRANCHES),
            lambda: writer.delete_items(repo.name, RULES),
        ):
            with pytest.raises(FeatureMissing):
                ask()
        assert all(b.creation_date is None for b in reader.list_branches(repo.name))


class DescribeOddAnswers:
    """What is no policy is an error, and never a policy that means something else."""

    @pytest.mark.parametrize(
        ("status", "body"),
        [
            (200, {"policies": [{"name_patterns": ["a"]}]}),
            (200, {"policies": [{"name_patterns": [], "max_age": 5}]}),
            (200, {"policies": [{"name_patterns": ["a", 7], "max_age": 5}]}),
            (200, {"policies": [{"name_patterns": ["a"], "max_age": "5"}]}),
            (200, {"policies": [{"name_patterns": ["a"], "max_age": -5}]}),
            (200, {"policies": "none"}),
            (200, {}),
            (404, {}),
        ],
    )
    def it_refuses_them(self, answering, status: int, body: dict) -> None:
        with pytest.raises(UnexpectedAnswer):
            answering(status, body).get_policies("r")

    @pytest.mark.parametrize("said", ["not found", "get branch lifecycle policies: not found"])
    def it_takes_what_says_that_nothing_is_set(self, answering, said: str) -> None:
        assert answering(404, {"message": said}).get_policies("r").items is None

    @pytest.mark.parametrize("said", ["license not found", "invalid API endpoint", "no branch here"])
    def it_takes_no_other_404_for_nothing_set(self, answering, said: str) -> None:
        with pytest.raises(ServerError):
            answering(404, {"message": said}).get_policies("r")

    @pytest.mark.parametrize("body", [{"policies": []}, {"policies": None}])
    def it_takes_an_empty_list_for_nothing(self, answering, body: dict) -> None:
        assert answering(200, body).get_policies("r").items is None


@pytest.fixture
def answering() -> Iterator[object]:
    """``answering(status, body)``: a reader of a server that answers everything so."""
    with ExitStack() as stack:

        def make(status: int, body: dict) -> LakeFSServer:
            scripted = Scripted()
            stack.callback(scripted.stop)
            scripted.script = [Answer(status, body)]
            keys = Credentials(Secret("a"), Secret("b"))
            return LakeFSServer.connect(scripted.config("odd"), keys, retries=RetryPolicy(tries=1))

        yield make
