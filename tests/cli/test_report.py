"""``lakeplan report`` as a person runs it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from lakeplan.cli.main import run
from lakeplan.errors import ExitCode, LakeplanError
from lakeplan.values.plan_document import dump_plan
from tests.output import report_pages as pages
from tests.simulation.namespaces import History, Snapshot, write_namespace


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(dump_plan(pages.plan(pages.repository(pages.history()))), encoding="utf-8")
    return path


@pytest.fixture
def two(tmp_path: Path) -> Path:
    path = tmp_path / "two.json"
    read = pages.history()
    path.write_text(dump_plan(pages.plan(pages.repository(read), pages.repository(read, "raw"))), "utf-8")
    return path


@pytest.fixture
def namespace(tmp_path: Path) -> str:
    drawn = History(
        (Snapshot("a", 60), Snapshot("b", 30, ("a",)), Snapshot("c", 2, ("b",)), Snapshot("f", 12, ("b",))),
        {"main": "c", "feature": "f"},
    )
    return write_namespace(tmp_path / "ns", drawn)


def graph_of(page: Path, number: int = 0) -> Any:
    text = page.read_text(encoding="utf-8")
    start = text.index(f'id="graph-{number}">') + len(f'id="graph-{number}">')
    return json.loads(text[start : text.index("</script>", start)])


class DescribeThePlanAlone:
    def it_writes_the_page_and_says_what_it_wrote(
        self, plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        page = tmp_path / "page.html"
        assert run(["report", str(plan), "--html", str(page)]) == ExitCode.OK
        shown = capsys.readouterr()
        size = f"{page.stat().st_size / 1000:.1f} kB"
        graphs = "0 with a commit graph (add them with -C DIR or --namespace URL)"
        assert shown.out == f"{page}: {size}, 1 repository, {graphs}\n"
        text = page.read_text(encoding="utf-8")
        assert "the plan file has no history. Read the history from the servers with -C DIR" in text
        assert "retention curves. Compute them with --with-curves" in text

    def it_writes_to_standard_output(self, plan: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        assert run(["report", str(plan), "--html", "-"]) == ExitCode.OK
        out = capfdbinary.readouterr().out
        assert out.startswith(b"<!doctype html>")
        assert out.endswith(b"</html>\n")

    def it_is_silent_when_asked(self, plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["report", str(plan), "--html", str(tmp_path / "p.html"), "-q"]) == ExitCode.OK
        assert capsys.readouterr() == ("", "")

    def it_shows_the_repositories_that_target_names(self, two: Path, tmp_path: Path) -> None:
        page = tmp_path / "page.html"
        assert run(["report", str(two), "--html", str(page), "--target", "ra*"]) == ExitCode.OK
        text = page.read_text(encoding="utf-8")
        assert "Now, in 7 days and in 30 days" not in text
        assert '<th scope="row">prod/raw</th>' in text
        assert '<th scope="row">prod/shop</th>' not in text


class DescribeNamespaces:
    def it_draws_the_history_of_a_namespace(self, plan: Path, namespace: str, tmp_path: Path) -> None:
        page = tmp_path / "page.html"
        assert run(["report", str(plan), "--html", str(page), "--namespace", namespace]) == ExitCode.OK
        graph = graph_of(page)
        assert (graph["key"], graph["commits"]) == ("prod/shop", 4)
        # a was followed by b thirty days ago on main: within the 60 days stored, past the 20 proposed
        assert graph["counts"]["now"] == {
            "kept": 3,
            "released": 0,
            "expires": 1,
            "at_risk": 0,
            "at_risk_already": 0,
            "gone": 0,
        }

    def it_draws_each_of_several(self, two: Path, namespace: str, tmp_path: Path) -> None:
        page = tmp_path / "page.html"
        given = ["--namespace", f"prod/raw={namespace}", "--namespace", f"shop={namespace}"]
        assert run(["report", str(two), "--html", str(page), *given]) == ExitCode.OK
        assert {graph_of(page, n)["key"] for n in (0, 1)} == {"prod/raw", "prod/shop"}

    def it_leaves_the_history_out_when_asked(
        self, plan: Path, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        page = tmp_path / "page.html"
        given = ["--namespace", namespace, "--no-graph"]
        assert run(["report", str(plan), "--html", str(page), *given]) == ExitCode.OK
        assert capsys.readouterr().out.endswith(", 0 with a commit graph\n")
        assert 'id="graph-0"' not in page.read_text(encoding="utf-8")

    def it_writes_the_page_without_a_history_that_cannot_be_read(
        self, plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        page = tmp_path / "page.html"
        (tmp_path / "empty").mkdir()
        given = ["--namespace", f"file://{tmp_path}/empty"]
        assert run(["report", str(plan), "--html", str(page), *given]) == ExitCode.PARTLY_DONE
        words = "prod/shop: no commit graph: the namespace has no refs dump"
        assert words in capsys.readouterr().err
        assert words in page.read_text(encoding="utf-8")

    def it_writes_the_page_without_a_damaged_history(
        self, plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        page = tmp_path / "page.html"
        lost = History((Snapshot("b", 3, ("a",)),), {"main": "b"})
        given = ["--namespace", write_namespace(tmp_path / "ns", lost)]
        assert run(["report", str(plan), "--html", str(page), *given]) == ExitCode.PARTLY_DONE
        assert "prod/shop: no commit graph: the main parent 61" in capsys.readouterr().err
        assert "the main parent 61" in page.read_text(encoding="utf-8")


class DescribeCurves:
    def it_draws_a_curve(self, plan: Path, tmp_path: Path) -> None:
        page, curve = tmp_path / "page.html", tmp_path / "curve.json"
        schema = Path(__file__).parents[2] / "schemas" / "curve.v1.json"
        jsonschema.validate(pages.curve(), json.loads(schema.read_text()))
        curve.write_text(json.dumps(pages.curve()))
        assert run(["report", str(plan), "--html", str(page), "--curve", str(curve)]) == ExitCode.OK
        text = page.read_text(encoding="utf-8")
        assert "proposed: 7 days, 40.0 kB" in text
        assert "retention curves. Compute them" not in text

    def it_makes_curves_of_the_histories_that_are_given(
        self, plan: Path, namespace: str, tmp_path: Path
    ) -> None:
        page = tmp_path / "page.html"
        given = ["--namespace", f"shop={namespace}/", "--with-curves"]
        assert run(["report", str(plan), "--html", str(page), *given]) == ExitCode.OK
        text = page.read_text(encoding="utf-8")
        assert "Default retention: figures" in text
        assert "Branch main: figures" in text
        assert "computed with rules that are neither" not in text, "they are of the proposed ones"
        assert "under the proposed rules come from the forecast in the curve file" in text

    def it_says_which_curve_could_not_be_made(
        self,
        plan: Path,
        namespace: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def fails(*_: object) -> None:
            raise LakeplanError("a range is damaged")

        monkeypatch.setattr("lakeplan.simulation.curve.curve", fails)
        page = tmp_path / "page.html"
        given = ["--namespace", namespace, "--with-curves"]
        assert run(["report", str(plan), "--html", str(page), *given]) == ExitCode.PARTLY_DONE
        words = "prod/shop: no retention curve: a range is damaged"
        assert words in capsys.readouterr().err
        assert words in page.read_text(encoding="utf-8")
        assert graph_of(page)["commits"] == 4, "the rest is there"

    def it_makes_no_more_than_a_few(
        self, two: Path, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakeplan.cli.commands.report.MAX_CURVES", 1)
        monkeypatch.setattr("lakeplan.simulation.curve.curve", lambda *_: pages.curve("prod/raw"))
        page = tmp_path / "page.html"
        given = ["--namespace", f"raw={namespace}", "--namespace", f"shop={namespace}", "--with-curves"]
        assert run(["report", str(two), "--html", str(page), *given]) == ExitCode.OK
        assert "no retention curves for prod/shop" in page.read_text(encoding="utf-8")

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": "curve.v1"}', "[" * 100_000])
    def it_refuses_what_is_no_curve(
        self, plan: Path, tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        curve = tmp_path / "curve.json"
        curve.write_text(content)
        given = ["--html", str(tmp_path / "page.html"), "--curve", str(curve)]
        assert run(["report", str(plan), *given]) == ExitCode.ERROR
        shown = capsys.readouterr().err
        assert str(curve) in shown
        assert "Run `lakeplan curve" in shown
        assert not (tmp_path / "page.html").exists()


def it_writes_a_page_of_a_plan_with_failures(tmp_path: Path) -> None:
    read = pages.history()
    broken = replace(pages.repository(read, "broken"), failure=pages_failure())
    path = tmp_path / "plan.json"
    path.write_text(dump_plan(pages.plan(broken)), encoding="utf-8")
    page = tmp_path / "page.html"
    assert run(["report", str(path), "--html", str(page)]) == ExitCode.OK
    assert "the server is away" in page.read_text(encoding="utf-8")


def pages_failure() -> Any:
    from lakeplan.values.plan import Failure

    return Failure("the server is away", where="prod/broken", hint="try again")
