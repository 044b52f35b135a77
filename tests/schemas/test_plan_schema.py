"""Plan files: their schema, and that what is loaded is exactly what was made."""

from __future__ import annotations

import contextlib
import io
import json
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from lakeplan.api import read_plan
from lakeplan.branches.consequences import MOMENTS
from lakeplan.errors import LakeplanError
from lakeplan.output.annotations import plan_annotations, render_github, render_junit_plan
from lakeplan.output.comments import COMMENT_LIMIT, marker, render_markdown
from lakeplan.output.explain import render_repository
from lakeplan.output.plan import render_plan
from lakeplan.review.differences import action_of, diff_rules
from lakeplan.tree.schemas import load_schema
from lakeplan.values.branches import BranchRow, Consequence, Keep, MomentTotal, OnlyHere
from lakeplan.values.desired import Evidence, ObjectRule, Policy, Price
from lakeplan.values.pins import PinRow, PinsPlan
from lakeplan.values.plan import (
    APPLY,
    BRANCHES_RUN,
    Backlog,
    BranchesPlan,
    BranchFate,
    Failure,
    GateOutcome,
    GateResult,
    Horizon,
    HorizonImpact,
    Impact,
    ImpactStatus,
    ObjectRulesPlan,
    Plan,
    PoliciesPlan,
    PrefixImpact,
    RepositoryPlan,
    SettingChange,
    TagLoss,
    WeakenedSetting,
)
from lakeplan.values.plan_document import digest_of, dump_plan, load_plan, to_document
from lakeplan.values.rules import Action, GcRules
from lakeplan.values.simulation import RunnerChoice

# Lone surrogates too: a path need not be UTF-8, and is read with surrogateescape.
TEXT = st.text(st.characters() | st.sampled_from("\udc80\udcff\x00\x1b\u2028"), max_size=8)
COUNT = st.integers(0, 2**63)
MAYBE = st.none() | COUNT
DAYS = st.integers(-(2**31), 2**31 - 1)
HEX = st.integers(0, 2**256 - 1).map(lambda n: f"{n:064x}")
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(timezone.utc))  # noqa: DTZ001
NUMBERS = st.none() | COUNT | st.floats(allow_nan=False, allow_infinity=False)
RULES = st.none() | st.builds(GcRules, DAYS, st.dictionaries(TEXT, DAYS, max_size=4))
HORIZON = st.builds(HorizonImpact, TIMES, *[COUNT] * 5, *[MAYBE] * 6)
IMPACT = st.builds(
    Impact,
    status=st.sampled_from(ImpactStatus),
    reason=TEXT,
    horizons=st.dictionaries(st.sampled_from([h.value for h in Horizon]), HORIZON),
    tags=st.lists(st.builds(TagLoss, TEXT, HEX, MAYBE, MAYBE), max_size=2).map(tuple),
    prefixes=st.lists(st.builds(PrefixImpact, TEXT, COUNT, COUNT, COUNT), max_size=2).map(tuple),
    backlog=st.none() | st.builds(Backlog, COUNT, MAYBE, MAYBE),
    ranges_read=COUNT,
    entries_read=COUNT,
    commits_digest=st.just("") | HEX,
    blind_to=TEXTS,
)
GATES = st.lists(
    st.builds(
        GateResult,
        TEXT,
        TEXT,
        st.sampled_from(GateOutcome),
        TEXT,
        NUMBERS,
        NUMBERS,
        TEXT,
        TEXT,
        st.sampled_from([h.value for h in Horizon]),
        st.sampled_from([APPLY, BRANCHES_RUN]),
    ),
    max_size=2,
).map(tuple)


POLICY = st.builds(Policy, st.none() | TEXT, TEXTS, st.none() | COUNT, st.none() | COUNT, TEXT)
OBJECT_RULE = st.builds(ObjectRule, TEXT, TEXTS, TEXT, DAYS, TEXT)
VALUES = st.dictionaries(TEXT, TEXT, max_size=2)
CHANGES = st.lists(
    st.builds(
        SettingChange,
        TEXT,
        st.sampled_from([Action.ADD, Action.CHANGE, Action.CLEAR]),
        VALUES,
        VALUES,
    ),
    max_size=2,
).map(tuple)
FATE = st.builds(
    BranchFate,
    *(TEXT, HEX, TIMES, st.none() | TIMES, TEXT, st.none() | TIMES, st.none() | TIMES, st.booleans()),
    *(MAYBE, st.booleans(), TEXTS, TEXTS),
)
HEAD = (st.sampled_from(Action), TEXT, CHANGES, TEXTS)
POLICIES_PLAN = st.builds(
    PoliciesPlan,
    *HEAD,
    *[st.none() | st.lists(POLICY, max_size=2).map(tuple)] * 2,
    st.booleans(),
    st.lists(FATE, max_size=2).map(tuple),
    st.dictionaries(st.sampled_from([h.value for h in Horizon]), COUNT),
    COUNT,
)
OBJECT_RULES_PLAN = st.builds(
    ObjectRulesPlan, *HEAD, *[st.none() | st.lists(OBJECT_RULE, max_size=2).map(tuple)] * 2
)


SECONDS = TIMES.map(lambda moment: moment.replace(microsecond=0))
MAYBE_SECONDS = st.none() | SECONDS
REASONS = st.sampled_from([k.value for k in Keep])
GOES = st.just(("delete", "policy")) | REASONS.map(lambda reason: ("keep", reason))


@st.composite
def branch_rows(draw: st.DrawFn) -> BranchRow:
    verdict, reason = draw(GOES)
    return BranchRow(
        draw(TEXT),
        draw(HEX),
        draw(st.booleans()),
        verdict,
        reason,
        policy=draw(st.none() | TEXT),
        since=draw(MAYBE_SECONDS),
        due=draw(MAYBE_SECONDS),
        created=draw(MAYBE_SECONDS),
        created_evidence=draw(st.none() | st.sampled_from(Evidence)),
        last_write=draw(MAYBE_SECONDS),
        last_write_evidence=draw(st.none() | st.sampled_from(Evidence)),
        uncommitted=draw(MAYBE),
        uncommitted_more=draw(st.booleans()),
        pulls=draw(TEXTS),
        tags=draw(TEXTS),
        safe_until=draw(MAYBE_SECONDS),
        follows=draw(st.none() | st.builds(Consequence, COUNT, MAYBE, MAYBE)),
        notes=draw(TEXTS),
        only_here=draw(st.none() | st.builds(OnlyHere, SECONDS, COUNT, MAYBE, MAYBE)),
    )


BRANCHES_PLAN = st.builds(
    BranchesPlan,
    TIMES,
    st.lists(branch_rows(), max_size=3).map(tuple),
    st.none() | TIMES,
    st.dictionaries(st.sampled_from([h.value for h in Horizon]), COUNT),
    st.dictionaries(st.sampled_from(MOMENTS), st.builds(MomentTotal, TIMES, COUNT, MAYBE, MAYBE)),
    TEXT,
    TEXTS,
    TEXT,
)


@st.composite
def repositories(draw: st.DrawFn) -> RepositoryPlan:
    before, after = draw(RULES), draw(RULES)
    return RepositoryPlan(
        *(draw(TEXT) for _ in range(4)),
        config_hash=draw(HEX),
        action=action_of(before, after),
        before=before,
        after=after,
        managed=draw(st.booleans()),
        adopted=draw(st.booleans()),
        owner=draw(st.none() | TEXT),
        source=draw(TEXT),
        changes=diff_rules(before, after),
        branches=draw(st.dictionaries(TEXT, HEX, max_size=3)),
        impact=draw(IMPACT),
        gates=draw(GATES),
        warnings=draw(TEXTS),
        unexpanded=draw(st.dictionaries(TEXT, DAYS, max_size=3)),
        branch_lifecycle=draw(st.none() | POLICIES_PLAN),
        object_lifecycle=draw(st.none() | OBJECT_RULES_PLAN),
        lifecycle=draw(st.none() | BRANCHES_PLAN),
        failure=draw(st.none() | st.builds(Failure, TEXT, TEXT, TEXT, st.integers(0, 255))),
        cost_per_gb_month=draw(
            st.none() | st.builds(Price, st.floats(0, 10**9), st.sampled_from(["", "EUR", "USD"]))
        ),
    )


PLANS = st.builds(
    Plan,
    as_of=TIMES,
    lakeplan_version=TEXT,
    tree_digest=TEXT,
    tree_commit=st.none() | TEXT,
    repositories=st.lists(repositories(), max_size=3, unique_by=lambda r: r.key).map(tuple),
    gates=GATES,
    allowed=TEXTS,
    targets=TEXTS,
    unmanaged=TEXTS,
    warnings=TEXTS,
    simulate=st.sampled_from(["changed", "all", "none"]),
    read_only=st.booleans(),
    base=st.none() | TEXT,
    loosenings=st.lists(st.builds(WeakenedSetting, TEXT, TEXT, TEXT, TEXT, TEXT), max_size=2).map(tuple),
    impact_tolerance_percent=st.none() | st.floats(0, 1e9),
    max_plan_age_seconds=MAYBE,
    runner=st.none() | st.builds(RunnerChoice, st.sampled_from(["local", "spark"]), TEXT),
)
SOME = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def a_plan() -> Plan:
    rules = GcRules(21, {"main": 28, "dév": 7})
    repository = RepositoryPlan(
        server="prod",
        name="analytics",
        entry="analytics",
        endpoint_url="https://lakefs.example.com",
        config_hash="5f" * 32,
        action=action_of(None, rules),
        before=None,
        after=rules,
        changes=diff_rules(None, rules),
        branches={"main": "ab" * 32},
    )
    return Plan(datetime(2026, 3, 31, 12, tzinfo=timezone.utc), "0.1.0", "7e" * 32, None, (repository,))


def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(load_schema("plan"))


def objects_of(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object schema inside ``schema``."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for child in schema.values():
            yield from objects_of(child)
    elif isinstance(schema, list):
        for child in schema:
            yield from objects_of(child)


OPTIONAL = {"what_if", "pins"}
"""Keys that only those documents have that they are about."""


class DescribeTheSchema:
    def it_is_a_schema(self) -> None:
        jsonschema.Draft202012Validator.check_schema(load_schema("plan"))

    def it_describes_every_field_and_takes_no_other(self) -> None:
        found = list(objects_of(load_schema("plan")))
        assert len(found) > 10
        for schema in found:
            assert schema.get("description")
            if schema["additionalProperties"] is False:
                assert all(p.get("description") for p in schema["properties"].values())
                always = [key for key in schema["properties"] if key not in OPTIONAL]
                assert schema.get("required") in (None, list(schema["properties"]), always)

    @pytest.mark.parametrize(
        ("kind", "where"),
        [
            (RepositoryPlan, "repository"),
            (Impact, "impact"),
            (HorizonImpact, "horizon_impact"),
            (GateResult, "gate"),
            (PoliciesPlan, "policies_plan"),
            (ObjectRulesPlan, "object_rules_plan"),
            (BranchFate, "branch_fate"),
            (BranchesPlan, "branches_plan"),
            (BranchRow, "branch_row"),
            (MomentTotal, "moment_total"),
            (WeakenedSetting, "loosening"),
            (PinsPlan, "pins_plan"),
            (PinRow, "pin_row"),
        ],
    )
    def it_has_the_fields_of_the_model(self, kind: Any, where: str) -> None:
        derived = {"before_etag", "after_etag"} if hasattr(kind, "before_etag") else set()
        named = set(load_schema("plan")["$defs"][where]["properties"])
        assert named == {f.name for f in fields(kind) if not f.metadata.get("not_in_document")} | derived

    @pytest.mark.parametrize(
        "damage",
        [
            lambda d: d.update(extra=1),
            lambda d: d.pop("digest"),
            lambda d: d.update(as_of="2026-03-31"),
            lambda d: d["repositories"][0].update(action="delete"),
            lambda d: d["repositories"][0].update(before_etag="abc"),
            lambda d: d["repositories"][0]["after"]["branches"][0].update(retention_days="7"),
            lambda d: d["repositories"][0]["impact"].update(status="zero"),
            lambda d: d["summary"].update(objects_expire=None),
        ],
    )
    def it_refuses_what_is_no_plan(self, damage: Any) -> None:
        document = to_document(a_plan())
        validator().validate(document)
        damage(document)
        with pytest.raises(jsonschema.ValidationError):
            validator().validate(document)

    @SOME
    @given(PLANS)
    def it_takes_every_plan_that_can_be_made(self, plan: Plan) -> None:
        validator().validate(to_document(plan))
        validator().validate(json.loads(dump_plan(plan)))


class DescribeShowingAPlan:
    """Whatever a valid document holds can be shown, at any width and in any encoding."""

    @SOME
    @given(PLANS, st.integers(1, 200), st.sampled_from(["utf-8", "ascii", "cp1252"]))
    def it_never_fails_and_never_lets_control_characters_through(
        self, plan: Plan, width: int, encoding: str
    ) -> None:
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
        console = Console(file=stream, width=width, highlight=False)
        document = json.loads(dump_plan(plan))
        render_plan(document, console)
        for repository in document["repositories"]:
            render_repository(repository, console)
        stream.seek(0)
        text = stream.read()
        assert all(c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in text)

    @SOME
    @given(PLANS, TEXT)
    def it_becomes_a_comment_annotations_and_junit_whatever_it_holds(self, plan: Plan, tree: str) -> None:
        document = json.loads(dump_plan(plan))
        comment = render_markdown(document, tree=tree)
        assert len(comment.encode()) <= COMMENT_LIMIT
        assert comment.splitlines()[0] == marker(tree)
        assert ("**BLOCKED**" in comment.splitlines()[1]) == bool(plan.refused)
        lines = render_github(plan_annotations(document), tree=tree).splitlines()
        assert all(re.match("::(error|warning|notice) ", line) for line in lines)
        assert sum(line.startswith("::error") for line in lines) == len(plan.refused) + len(plan.failed)
        root = ET.fromstring(render_junit_plan(document, tree=tree).encode())
        assert (root.get("failures"), root.get("errors")) == (str(len(plan.refused)), str(len(plan.failed)))

    @SOME
    @given(PLANS)
    def it_says_so_when_an_impact_is_unknown_or_a_gate_refuses(self, plan: Plan) -> None:
        stream = io.StringIO()
        render_plan(to_document(plan), Console(file=stream, width=2_000, highlight=False))
        last = stream.getvalue().splitlines()[-1]
        unknown = any(not r.impact_known for r in plan.writes)
        unread = any(r.lifecycle and r.lifecycle.unknown for r in plan.repositories)
        assert ("UNKNOWN" in last) == (unknown or unread)
        assert ("Branches to delete: UNKNOWN" in last) == unread
        assert ("BLOCKED" in last) == bool(plan.refused)


class DescribeAPlanFile:
    @SOME
    @given(PLANS)
    def it_loads_as_exactly_the_plan_that_was_made(self, plan: Plan) -> None:
        text = dump_plan(plan)
        loaded = load_plan(text.encode("utf-8").decode("utf-8"), where="plan.json")
        assert loaded == plan
        assert dump_plan(loaded) == text

    @SOME
    @given(PLANS, st.data())
    def it_is_refused_when_cut_anywhere(self, plan: Plan, data: st.DataObject) -> None:
        text = dump_plan(plan).rstrip()
        kept = data.draw(st.integers(0, len(text) - 1))
        with pytest.raises(LakeplanError) as caught:
            load_plan(text[:kept], where="plan.json")
        assert caught.value.where == "plan.json"
        assert "lakeplan plan" in caught.value.hint

    @pytest.mark.parametrize(
        "edit",
        [
            ('retention_days": 28', 'retention_days": 1'),
            ('"action": "add"', '"action": "none"'),
            ('"branch_id": "main"', '"branch_id": "dev"'),
            ('"objects_expire": 0', '"objects_expire": 1'),
            ('"read_only": false', '"read_only": true'),
            ('"before": null', '"before": 7'),
        ],
    )
    def it_is_refused_when_edited(self, edit: tuple[str, str]) -> None:
        text = dump_plan(a_plan())
        assert edit[0] in text
        with pytest.raises(LakeplanError, match="changed after it was created"):
            load_plan(text.replace(edit[0], edit[1], 1), where="plan.json")

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda d: d.update(tolerance=1), "tolerance"),
            (lambda d: d["repositories"][0].update(trusted=True), "trusted"),
            (lambda d: d["repositories"][0]["impact"].update(ranges_read=-1), "ranges_read: -1"),
            (lambda d: d.update(impact_tolerance_percent=-5), "impact_tolerance_percent: -5"),
            (lambda d: d.update(as_of="2026-03-31"), "as_of"),
            (lambda d: d["summary"].update(objects_expire=0, bytes_expire=0, add=7), "totals or ETags"),
            (lambda d: d["repositories"][0].update(after_etag="0" * 64), "totals or ETags"),
            (lambda d: d["repositories"].append(d["repositories"][0]), "twice"),
            (lambda d: d.pop("allowed"), "allowed"),
        ],
    )
    def it_is_refused_with_anything_that_lakeplan_does_not_write(
        self, tmp_path: Path, change: Any, says: str
    ) -> None:
        """Edited by somebody who makes the digest again."""
        document = to_document(a_plan())
        change(document)
        document["digest"] = digest_of(document)
        file = tmp_path / "plan.json"
        file.write_text(json.dumps(document))
        with pytest.raises(LakeplanError, match="lakeplan did not write this plan file") as caught:
            read_plan(file)
        assert says in caught.value.message

    @pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", '1, "read_only": true'])
    def it_is_refused_with_numbers_and_keys_that_json_does_not_know(self, value: str) -> None:
        """NaN as a tolerance would let anything pass: no figure is above it."""
        document = to_document(replace(a_plan(), impact_tolerance_percent=77.5))
        text = json.dumps(document).replace("77.5", value)
        with pytest.raises(LakeplanError, match="cannot read the plan file: it is truncated"):
            load_plan(text, where="plan.json")

    @SOME
    @given(st.data())
    def it_is_refused_whichever_value_is_of_another_kind(self, data: st.DataObject) -> None:
        """Even with a digest made again: a plan of a later or broken lakeplan never gives a traceback."""
        document = to_document(a_plan())
        place: Any = document
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            key = data.draw(st.sampled_from(list(keys)))
            if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
                break
            place = place[key]
        place[key] = data.draw(st.sampled_from([None, 7, 7.5, True, "text", [], {}, ["x"], {"a": 1}]))
        document["digest"] = digest_of(document)
        text = json.dumps(document)
        loaded = None
        with contextlib.suppress(LakeplanError):  # any other error fails this test
            loaded = load_plan(text, where="plan.json")
        assert loaded is None or load_plan(dump_plan(loaded), where="plan.json") == loaded

    @pytest.mark.parametrize("text", ["", "[]", "null", "7", '{"format": "lakeplan.plan/v2"}', "[" * 100_000])
    def it_is_refused_when_it_is_something_else(self, text: str) -> None:
        with pytest.raises(LakeplanError) as caught:
            load_plan(text, where="plan.json")
        assert caught.value.where == "plan.json"

    def it_keeps_whole_numbers_of_gates_whole(self) -> None:
        gate = GateResult("expired-bytes", "plan", GateOutcome.PASSED, "", value=2**53 + 1, limit=5.0)
        plan = Plan(a_plan().as_of, "0.1.0", "", None, (), gates=(gate,))
        again = load_plan(dump_plan(plan), where="plan.json")
        assert again.gates[0].value == 2**53 + 1
        assert to_document(again)["digest"] == to_document(plan)["digest"]
