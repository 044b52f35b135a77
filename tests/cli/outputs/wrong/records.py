"""Wrong uses of commands that go by what the state has on record: branches, sweeps, history."""

from __future__ import annotations

from tests.cli.outputs.cases import plan_file, two_weeks_later
from tests.cli.outputs.site import Site
from tests.cli.outputs.wrong.kinds import Uses, Wrong, no_server, no_tree, output, typing


def engine_of_server(site: Site) -> None:
    site.edit("lakeplan.yaml", "engine: lakeplan", "engine: server")


def no_storage(site: Site) -> None:
    site.edit("lakeplan.yaml", '    storages: {"": {type: local, path: ../lakefs}}\n', "")


def state_elsewhere(site: Site) -> None:
    site.edit("lakeplan.yaml", "include:", "state: {url: s3://ops/lakeplan}\ninclude:")


NO_MARK = "20250101T000000-00000000"
NO_RUN = "20250101T000000"

WRONG: dict[str, Uses] = {
    "branches plan": {
        **typing("branches plan"),
        **no_tree("branches plan"),
        **no_server("branches plan --no-simulate"),
        **output("branches plan"),
        "the name of an earlier release": Wrong("lifecycle plan --no-simulate"),
        "a target without policies": Wrong("branches plan --target ml-features"),
        "a server that the tree does not have": Wrong("branches plan --server stage"),
    },
    "branches run": {
        **typing("branches run"),
        **no_tree("branches run"),
        **no_server("branches run", stage="observed"),
        "a server that deletes branches itself": Wrong("branches run", prepare=engine_of_server),
        "a schedule that is none": Wrong("branches run --every daily"),
        "a schedule for one plan": Wrong("branches run branches.json --every '0 * * * *'"),
        "a file that is not there": Wrong("branches run nowhere.json"),
        "a plan of rules": Wrong("branches run plan.json", 1, prepare=plan_file),
        "a gate opened without a terminal": Wrong("branches run --allow deleted-branches"),
        "a state that goes with the runner": Wrong("branches run", environment={"CI": "true"}),
    },
    "branches undo": {
        **typing("branches undo"),
        **no_tree("branches undo"),
        **output("branches undo"),
        "nothing was deleted": Wrong("branches undo", stage="observed"),
        "a run that is not on record": Wrong(f"branches undo --run {NO_RUN}", stage="observed"),
        "a branch that is not on record": Wrong("branches undo --branch nowhere", stage="observed"),
    },
    "check": {
        **typing("check"),
        **no_tree("check"),
        **no_server("check --target 'lake-*'"),
        **output("check"),
        "a storage that the tree does not tell": Wrong("check --target 'lake-*'", 3, prepare=no_storage),
        "a target that the tree does not have": Wrong("check --target none-*"),
    },
    "branches exempt": {
        **typing("branches exempt analytics feature-login --until 2099-12-31"),
        **no_tree("branches exempt analytics feature-login --until 2099-12-31"),
        **no_server("branches exempt analytics feature-login --until 2099-12-31"),
        "neither a date nor its removal": Wrong("branches exempt analytics feature-login"),
        "a date that is over": Wrong("branches exempt analytics feature-login --until 2020-01-01"),
        "a branch that does not exist": Wrong("branches exempt analytics nowhere --until 2099-12-31"),
        "a repository without an entry": Wrong("branches exempt nowhere main --until 2099-12-31"),
        "an exemption that is not there": Wrong("branches exempt analytics feature-login --remove"),
        "a state that goes with the runner": Wrong(
            "branches exempt analytics feature-login --until 2099-12-31", environment={"CI": "true"}
        ),
    },
    "sweep mark": {
        **typing("sweep mark"),
        **no_tree("sweep mark"),
        **no_server("sweep mark --target 'lake-*'"),
        **output("sweep mark"),
        "an age that cannot be read": Wrong("sweep mark --min-age old"),
        "a word that is none of two": Wrong("sweep mark --never-committed delete"),
        "a gate that does not exist": Wrong("sweep mark --allow sweep-limits"),
        "a time-out of nothing": Wrong("sweep mark --read-timeout 0"),
        "a storage that the tree does not tell": Wrong("sweep mark --target 'lake-*'", 1, prepare=no_storage),
        "a target that the tree does not have": Wrong("sweep mark --target none-*"),
    },
    "sweep approve": {
        **typing(f"sweep approve {NO_MARK} --reason r"),
        **no_tree(f"sweep approve {NO_MARK} --reason r"),
        "no mark": Wrong("sweep approve --reason r"),
        "no reason": Wrong(f"sweep approve {NO_MARK}"),
        "a mark that is not there": Wrong(f"sweep approve {NO_MARK} --reason r"),
        "a gate opened without a terminal": Wrong(
            "sweep approve {mark} --reason r --allow sweep-limit", stage="marked"
        ),
        "a state that is not bound": Wrong(f"sweep approve {NO_MARK} --reason r", 1, prepare=state_elsewhere),
    },
    "sweep run": {
        **typing(f"sweep run {NO_MARK}"),
        **no_tree(f"sweep run {NO_MARK}"),
        "no mark": Wrong("sweep run"),
        "a mark that is not there": Wrong(f"sweep run {NO_MARK}"),
        "a mark that cannot be one": Wrong("sweep run ../mark"),
        "an option of an earlier release": Wrong(f"sweep run {NO_MARK} --close"),
        "no workers": Wrong(f"sweep run {NO_MARK} --parallelism 0"),
        "a state that goes with the runner": Wrong(f"sweep run {NO_MARK}", environment={"CI": "true"}),
        "a mark that nobody approved": Wrong("sweep run {mark}", 4, "marked"),
    },
    "sweep restore": {
        **typing(f"sweep restore {NO_MARK}"),
        **no_tree(f"sweep restore {NO_MARK}"),
        "no mark": Wrong("sweep restore"),
        "a mark that is not there": Wrong(f"sweep restore {NO_MARK}"),
        "a mark that was not swept": Wrong("sweep restore {mark}", stage="marked"),
        "a path that is not in it": Wrong("sweep restore {mark} --path nowhere/", stage="swept"),
    },
    "sweep purge": {
        **typing("sweep purge --older-than 1d"),
        **no_tree("sweep purge --older-than 1d"),
        "an age that cannot be read": Wrong("sweep purge --older-than old"),
        "nobody to ask": Wrong("sweep purge --older-than 14d", stage="swept", prepare=two_weeks_later),
        "a state that is not bound": Wrong("sweep purge --older-than 1d", 1, prepare=state_elsewhere),
    },
    "sweep abort": {
        **typing(f"sweep abort {NO_MARK}"),
        **no_tree(f"sweep abort {NO_MARK}"),
        "a mark that is not there": Wrong(f"sweep abort {NO_MARK}"),
        "a sweep that nobody began": Wrong("sweep abort {mark}", stage="marked"),
    },
    "sweep list": {
        **typing("sweep list"),
        **no_tree("sweep list"),
        **output("sweep list"),
        "a state that is not bound": Wrong("sweep list", 1, prepare=state_elsewhere),
        "the name of an earlier release": Wrong("sweep report"),
    },
    "sweep show": {
        **typing(f"sweep show {NO_MARK}"),
        **no_tree(f"sweep show {NO_MARK}"),
        **output(f"sweep show {NO_MARK}"),
        "a mark that is not there": Wrong(f"sweep show {NO_MARK}"),
        "a state that is not bound": Wrong(f"sweep show {NO_MARK}", 1, prepare=state_elsewhere),
    },
    "history list": {
        **typing("history list"),
        **no_tree("history list"),
        **output("history list"),
        "a limit of nothing": Wrong("history list --limit 0"),
        "a limit that is no number": Wrong("history list --limit few"),
        "a state that is not bound": Wrong("history list", 1, prepare=state_elsewhere),
    },
    "history show": {
        **typing("history show last"),
        **no_tree("history show last"),
        **output("history show last"),
        "no run": Wrong("history show"),
        "no run on record": Wrong("history show last"),
        "a run that is not on record": Wrong(f"history show {NO_RUN}", stage="applied"),
        "two runs": Wrong("history show last last"),
    },
    "history rollback": {
        **typing("history rollback last"),
        **no_tree("history rollback last"),
        **no_server("history rollback last", stage="applied"),
        "no run": Wrong("history rollback"),
        "no run on record": Wrong("history rollback last"),
        "a tree that asks for other rules": Wrong("history rollback last", 5, "applied"),
        "a gate that does not exist": Wrong("history rollback last --allow tag-lost"),
        "a target that the run does not have": Wrong(
            "history rollback last --target none-*", stage="applied"
        ),
    },
}
