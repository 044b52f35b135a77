"""The requests of a mark to a server: uncommitted addresses to the last token, and the grace period."""

from __future__ import annotations

import base64
import json

import pytest
import requests

from lakeplan.errors import (
    NotFound,
    PermissionDenied,
    ReadOnlyRepository,
    RepositoryNotFound,
    UnexpectedAnswer,
)
from lakeplan.formats.collector import files_of_run, read_uncommitted
from lakeplan.lakefs.credentials import Credentials, Secret
from lakeplan.lakefs.transport import RetryPolicy
from lakeplan.lakefs.writers import LakeFSPreparer
from lakeplan.values.desired import ServerConfig
from lakeplan.values.simulation import UncommittedRun
from tests.lakefs.conftest import Answer
from tests.sandboxes import start_sandbox

RUN = "ft6s5q1gmnv7m2crlajg"


def preparer(endpoint_url: str, key: str = "key", secret: str = "secret"):
    credentials = Credentials(Secret(key), Secret(secret))
    return LakeFSPreparer.connect(
        ServerConfig("prod", endpoint_url), credentials, retries=RetryPolicy(tries=1)
    )


class DescribePreparingUncommittedAddresses:
    def it_goes_on_until_no_token_comes_back(self, scripted):
        scripted.script = [
            Answer(201, {"run_id": RUN, "gc_uncommitted_location": "x", "continuation_token": "t1"}),
            Answer(201, {"run_id": RUN, "gc_uncommitted_location": "x", "continuation_token": "t2"}),
            Answer(201, {"run_id": RUN, "gc_uncommitted_location": "x", "continuation_token": None}),
        ]
        assert preparer(scripted.url).prepare_uncommitted("lake") == (UncommittedRun(RUN, "x"),) * 3
        assert [json.loads(seen.body or b"{}") for seen in scripted.seen] == [
            {},
            {"continuation_token": "t1"},
            {"continuation_token": "t2"},
        ]

    def it_names_every_run_that_the_answers_name(self, scripted):
        scripted.script = [
            Answer(201, {"run_id": "one", "gc_uncommitted_location": "", "continuation_token": "t1"}),
            Answer(201, {"run_id": "two", "gc_uncommitted_location": "s3://b/x/"}),
        ]
        asked = preparer(scripted.url)
        runs = (UncommittedRun("one", ""), UncommittedRun("two", "s3://b/x/"))
        assert asked.prepare_uncommitted("lake") == runs

    @pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
    def it_says_where_an_answer_without_a_file_begins_and_ends(self, scripted, encode):
        def token(branch: str, path: str) -> str:
            return encode(json.dumps({"branch": branch, "path": path, "run_id": RUN}).encode()).decode()

        place = {"run_id": RUN, "gc_uncommitted_location": ""}
        scripted.script = [
            Answer(201, {**place, "gc_uncommitted_location": "x", "continuation_token": token("b", "~?p/1")}),
            Answer(201, {**place, "continuation_token": token("d", "")}),
            Answer(201, {**place, "continuation_token": "no place"}),
            Answer(201, place),
        ]
        assert preparer(scripted.url).prepare_uncommitted("lake") == (
            UncommittedRun(RUN, "x"),
            UncommittedRun(RUN, "", ("b", "~?p/1"), ("d", "")),
            UncommittedRun(RUN, "", ("d", ""), None),
            UncommittedRun(RUN, "", ("", ""), None),
        )

    def it_begins_again_when_a_branch_was_deleted_meanwhile(self, scripted):
        """A real server answers this; the token belongs to the listing that failed."""
        scripted.script = [
            Answer(201, {"run_id": "one", "gc_uncommitted_location": "x", "continuation_token": "t1"}),
            Answer(404, {"message": "branch not found"}),
            Answer(201, {"run_id": "two", "gc_uncommitted_location": "x"}),
        ]
        assert preparer(scripted.url).prepare_uncommitted("lake") == (UncommittedRun("two", "x"),)
        bodies = [json.loads(seen.body or b"{}") for seen in scripted.seen]
        assert bodies == [{}, {"continuation_token": "t1"}, {}]

    def it_gives_up_when_branches_are_deleted_all_the_time(self, scripted):
        scripted.script = [Answer(404, {"message": "branch not found"})]
        with pytest.raises(NotFound, match="branch not found") as caught:
            preparer(scripted.url).prepare_uncommitted("lake")
        assert "Run the command again" in caught.value.hint
        assert len(scripted.seen) == 4

    @pytest.mark.parametrize("tokens", [["t"], ["t1", "t2", "t1"]])
    def it_does_not_ask_for_ever(self, scripted, tokens):
        scripted.script = [
            Answer(201, {"run_id": RUN, "gc_uncommitted_location": "x", "continuation_token": token})
            for token in tokens
        ]
        scripted.script += [Answer(500, {"message": "enough"})] if len(tokens) > 1 else []
        with pytest.raises(UnexpectedAnswer, match="without reaching the end of the listing"):
            preparer(scripted.url).prepare_uncommitted("lake")
        assert len(scripted.seen) == max(2, len(tokens))

    @pytest.mark.parametrize(
        "body",
        [
            {},
            {"run_id": "", "gc_uncommitted_location": "x"},
            {"run_id": 7, "gc_uncommitted_location": "x"},
            {"run_id": "r", "gc_uncommitted_location": "x", "continuation_token": 7},
            {"run_id": "r"},  # not the same as "", which says that nothing is staged
            {"run_id": "r", "gc_uncommitted_location": None},
        ],
    )
    def it_takes_no_answer_for_a_run_that_is_none(self, scripted, body):
        scripted.script = [Answer(201, body)]
        with pytest.raises(UnexpectedAnswer):
            preparer(scripted.url).prepare_uncommitted("lake")

    def it_says_what_is_not_permitted(self, scripted):
        scripted.script = [Answer(403, {"message": "no"})]
        with pytest.raises(PermissionDenied):
            preparer(scripted.url).prepare_uncommitted("lake")


class DescribeTheGracePeriod:
    def it_is_the_servers(self, scripted):
        scripted.script = [Answer(200, {"grace_period": 3600})]
        assert preparer(scripted.url).grace_period_seconds() == 3600

    @pytest.mark.parametrize("body", [{}, {"grace_period": 0}, {"grace_period": -1}])
    def it_is_unknown_where_the_answer_names_none(self, scripted, body):
        scripted.script = [Answer(200, body)]
        assert preparer(scripted.url).grace_period_seconds() is None

    @pytest.mark.parametrize("status", [403, 404])
    def it_is_unknown_where_the_server_does_not_say(self, scripted, status):
        scripted.script = [Answer(status, {"message": "invalid API endpoint"})]
        assert preparer(scripted.url).grace_period_seconds() is None


class DescribeTheSandbox:
    def it_prepares_what_is_staged_over_several_files(self, tmp_path):
        with start_sandbox(tmp_path) as handle:
            call = Calls(handle)
            call("POST", "", json={"name": "lake", "storage_namespace": "local://lake"})
            for n in range(5):
                call("POST", "/lake/branches/main/objects", params={"path": f"p{n}"}, data=b"x")
            asked = preparer(handle.endpoint_url, handle.access_key_id, handle.secret_access_key)
            (run,) = asked.prepare_uncommitted("lake")
            keys = [
                str(f.relative_to(tmp_path / "lake")) for f in (tmp_path / "lake").rglob("*") if f.is_file()
            ]
            found = [
                address
                for key in files_of_run(keys, run.run_id)
                for address in read_uncommitted((tmp_path / "lake" / key).read_bytes(), name=key)
            ]
            assert sorted(found) == sorted(k for k in keys if k.startswith("data/"))
            assert asked.grace_period_seconds() == 86400
            with pytest.raises(RepositoryNotFound):
                asked.prepare_uncommitted("nothing")

    def it_refuses_a_read_only_repository(self, tmp_path):
        with start_sandbox(tmp_path) as handle:
            call = Calls(handle)
            body = {"name": "lake", "storage_namespace": "local://lake", "read_only": True}
            call("POST", "", json=body)
            asked = preparer(handle.endpoint_url, handle.access_key_id, handle.secret_access_key)
            with pytest.raises(ReadOnlyRepository):
                asked.prepare_uncommitted("lake")


class Calls:
    """The few calls that draw something."""

    def __init__(self, handle) -> None:
        self._root = f"{handle.endpoint_url}/api/v1/repositories"
        self._auth = (handle.access_key_id, handle.secret_access_key)

    def __call__(self, method: str, path: str, **more) -> None:
        headers = {"Content-Type": "application/octet-stream"} if "data" in more else {}
        url = self._root + path
        answer = requests.request(method, url, auth=self._auth, timeout=30, headers=headers, **more)
        answer.raise_for_status()
