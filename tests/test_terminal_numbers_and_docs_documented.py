"""What lakeplan promises of its terminal, its numbers for others and its docs, phrase by phrase, and the
tests that show it, by name: a name that is no test any more fails here."""

from __future__ import annotations

import pytest

from tests.documented import missing

BROWSER = "render/test_report_browser.py"
PLAN = "e2e/test_plan_apply.py"
OUTPUTS = "cli/outputs/test_outputs.py"
COMPLETE = "cli/outputs/test_complete.py"
TERMINALS = "cli/outputs/test_terminals.py"
WRONG_USES = "cli/outputs/test_wrong_uses.py"
PROGRESS = "cli/test_progress.py"
COMPLETION = "cli/test_completion.py"
AMOUNTS = "render/test_amounts.py"
TABLES = "render/test_page.py"
METRICS = "render/test_metrics.py"
METRICS_LIVE = "e2e/test_metrics.py"
MONEY = "render/test_money.py"
COSTS = "e2e/test_costs.py"
STALE = "e2e/lifecycle/test_stale.py"
REDACT = "e2e/test_redact.py"
REFERENCE = "cli/reference/test_pages.py"
SETTINGS = "cli/reference/test_settings.py"
DOCS = "docs/test_pages.py"
LINKS = "docs/test_links.py"
API = "docs/test_api_examples.py"
MANY = "e2e/test_many_repositories.py"

PHRASES: dict[str, tuple[str, ...]] = {
    # ---- the terminal
    "tables that fit 80 columns and use 200": (
        f"{OUTPUTS}::it_looks_as_reviewed",
        f"{TERMINALS}::it_uses_what_a_wide_terminal_has",
        "render/test_plan.py::it_never_prints_a_line_wider_than_the_terminal",
    ),
    "no wrapping mid-number": (
        f"{TERMINALS}::it_cuts_no_figure_on_a_narrow_one",
        f"{TABLES}::it_cuts_no_figure_in_a_table",
        "render/test_plan.py::it_cuts_no_figure_at_any_width",
    ),
    "human and exact numbers": (
        f"{AMOUNTS}::it_shows_bytes_in_decimal_units",
        f"{AMOUNTS}::it_counts_with_separators_and_nouns",
        f"{PLAN}::it_counts_what_goes_to_the_byte",
        f"{METRICS}::it_keeps_large_figures_whole",
    ),
    "NO_COLOR": (f"{TERMINALS}::it_has_none_when_asked", f"{TERMINALS}::it_has_them_on_a_terminal"),
    "progress with rate and remaining time": (
        f"{PROGRESS}::it_shows_rate_and_remaining_time_once_they_are_known",
        f"{PROGRESS}::it_shows_text_steps_and_total_and_takes_its_lines_away",
    ),
    "quiet in CI": (
        f"{TERMINALS}::it_shows_no_bars_and_no_escapes",
        f"{TERMINALS}::it_is_quiet",
        f"{TERMINALS}::it_still_says_why_it_failed",
        f"{PROGRESS}::it_writes_nothing_where_standard_error_is_no_terminal",
    ),
    "help with examples for every command": (
        f"{COMPLETE}::it_has_help_as_reviewed",
        f"{COMPLETE}::it_shows_examples_with_options_that_there_are",
    ),
    "shell completion": (
        f"{COMPLETION}::it_completes",
        f"{COMPLETION}::it_answers_a_shell",
        f"{COMPLETION}::it_prints_the_script_of_a_shell",
    ),
    "lakectl lakeplan": (f"{TERMINALS}::it_is_a_plugin_of_lakectl",),
    "errors: what, where, what to do": (f"{WRONG_USES}::it_says_what_where_and_what_to_do",),
    # ---- numbers for others
    "openmetrics: last apply and sweep, per repository and owner": (
        f"{METRICS}::it_says_when_each_repository_was_applied_and_swept_last",
        f"{METRICS_LIVE}::it_follows_a_change_from_plan_to_history",
        f"{METRICS_LIVE}::it_names_the_owner_of_what_drift_could_not_read",
    ),
    "openmetrics: backlog, at risk": (
        f"{METRICS}::it_has_the_backlog_where_it_was_read",
        f"{METRICS}::it_tells_what_expires_when_and_what_refuses",
    ),
    "openmetrics: reclaimed and quarantined bytes": (
        f"{METRICS}::it_tells_what_a_mark_would_take_and_what_a_sweep_took",
    ),
    "openmetrics: failures": (f"{METRICS_LIVE}::it_tells_refused_gates_and_failures",),
    "openmetrics: text that every scraper can read": (
        f"{METRICS}::it_escapes_any_label",
        f"{METRICS}::it_names_every_family_once_by_the_rules",
    ),
    "servers.*.cost_per_gb_month adds money to every table": (
        f"{COSTS}::it_shows_where_the_price_comes_from",
        f"{COSTS}::it_is_in_the_plan_file_and_survives_its_apply",
        f"{COSTS}::it_is_in_the_documents_of_branches_and_drift",
        f"{COSTS}::it_is_in_a_curve",
        f"{MONEY}::it_looks_as_reviewed",
        f"{MONEY}::it_looks_as_reviewed_in_a_comment",
        f"{MONEY}::it_tells_what_a_sweep_freed",
        f"{MONEY}::it_is_on_the_page_beside_every_figure_of_bytes",
    ),
    "stale branches with the bytes that only they hold": (
        f"{STALE}::it_counts_as_a_simulation_of_the_namespace_does",
        "render/test_plan_branches.py::it_shows_what_stale_branches_hold_alone_the_most_first",
    ),
    "--redact-paths": (
        f"{REDACT}::it_plans_shows_and_applies_without_a_path",
        f"{REDACT}::it_redacts_answers_questions_and_configuration",
        f"{REDACT}::it_redacts_log_lines",
        "render/test_redact.py::it_shows_no_path_in_any_format",
    ),
    # ---- docs
    "docs: README for the first ten minutes": (
        "docs/test_readme.py::it_names_no_command_that_does_not_exist",
        "docs/test_readme.py::it_documents_every_command",
        "docs/test_readme_policy_test.py::it_passes_as_it_stands",
        "docs/test_sandbox.py::it_plans_and_applies_the_quickstart",
    ),
    "docs: every command and setting, generated from the code": (
        f"{REFERENCE}::it_is_what_the_program_makes",
        "cli/reference/test_commands.py::it_names_every_option_with_its_help_and_variable",
        f"{SETTINGS}::it_says_what_every_key_is",
    ),
    "docs: concepts, the simulation, operations, lakectl and official settings, the comparison": (
        f"{DOCS}::it_names_commands_that_there_are",
        f"{DOCS}::it_names_options_that_there_are",
        f"{DOCS}::it_names_keys_that_there_are",
        f"{DOCS}::it_has_every_gate_in_the_table_of_concepts",
        f"{LINKS}::it_leads_somewhere",
        f"{LINKS}::it_finds_every_page_from_the_index",
    ),
    "docs: the server's early stop with a picture": (
        "cli/reference/test_early_stop.py::it_shows_one_order_that_loses_a_commit_and_one_that_keeps_it",
        "cli/reference/test_early_stop.py::it_is_a_picture_with_both_results_in_words",
    ),
    "docs: API of the package for those who script it": (
        f"{API}::it_runs_every_example",
        f"{API}::it_shows_every_function",
    ),
    # ---- must show
    "each command with a golden output test at 80 and 160 columns": (
        f"{COMPLETE}::it_shows_the_output_of_every_command",
        f"{OUTPUTS}::it_looks_as_reviewed",
    ),
    "each command with five kinds of wrong use": (
        f"{COMPLETE}::it_uses_every_command_wrong_in_five_ways",
        f"{COMPLETE}::it_never_takes_a_wrong_use_for_a_right_one",
        f"{WRONG_USES}::it_says_what_where_and_what_to_do",
    ),
    "a tree of very many repositories: output still readable, summary first (times: bench/repositories.py)": (
        f"{MANY}::it_validates_in_one_line",
        f"{MANY}::it_plans_with_the_sum_where_people_look_first",
        "render/test_plan.py::it_joins_those_that_change_alike_and_still_names_each",
    ),
    "the report of 10,000 commits: under 5 MB, interactive (times: docs/report.md)": (
        f"{BROWSER}::it_takes_ten_thousand_commits",
    ),
    "screenshots in the docs": ("docs/test_report_page.py::it_has_small_pictures",),
}


@pytest.mark.parametrize("phrase", PHRASES)
def it_is_shown_by_tests_of_these_names(phrase: str) -> None:
    assert PHRASES[phrase]
    assert missing(PHRASES[phrase]) == []
