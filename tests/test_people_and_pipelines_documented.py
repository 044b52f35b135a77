"""What lakeplan promises people and pipelines, phrase by phrase, and the tests that show it, by name: a name
that is no test any more fails here."""

from __future__ import annotations

import pytest

from tests.documented import missing

EXPLAIN = "core/test_explain.py"
EXPLAIN_APP = "app/test_explain.py"
EXPLAIN_LIVE = "e2e/test_explain.py"
EXPLAIN_GOLDEN = "golden/test_explain.py"
POLICY_TEST = "app/test_policy_test.py"
POLICY_CLI = "cli/test_policy_test.py"
IMPORT = "e2e/test_import_export.py"
IMPORT_APP = "app/test_importing.py"
POLICIES = "e2e/test_policies.py"
DRIFT = "e2e/test_drift.py"
DRIFT_CORE = "core/test_drift.py"
DRIFT_ITEMS = "core/test_drift_settings.py"
HISTORY = "e2e/test_history.py"
DOCTOR = "e2e/test_doctor.py"
DOCTOR_APP = "app/test_doctor.py"
INIT = "e2e/test_init.py"
GATES = "core/planning/test_gates.py"
PLAN = "e2e/test_plan_apply.py"
BASE = "e2e/test_base.py"
LOOSENING = "core/planning/test_loosening.py"
MARKDOWN = "render/test_markdown.py"
GITHUB = "render/test_github.py"
JUNIT = "render/test_junit.py"
CI = "examples/test_ci.py"
HOSTS = "examples/test_hosts.py"
STORY = "examples/test_story.py"
TREES = "examples/test_trees.py"
PAGE = "render/test_report.py"
BROWSER = "render/test_report_browser.py"
GRAPH = "app/report_page/test_graph.py"
PAGE_DATA = "app/report_page/test_page_document.py"

PHRASES: dict[str, tuple[str, ...]] = {
    # ---- explain
    "explain: a path at a ref or anywhere, a commit, a branch or an address": (
        f"{EXPLAIN}::it_understands_what_is_meant",
        f"{EXPLAIN_LIVE}::it_finds_the_same_object_by_its_address_relative_or_full",
        f"{EXPLAIN_LIVE}::it_explains_commits_branches_and_tags",
    ),
    "explain: kept, by which branch, rule and date, until when": (
        f"{EXPLAIN}::it_says_what_the_verdicts_say",
        f"{EXPLAIN_LIVE}::it_explains_a_path_under_the_stored_and_the_proposed_rules",
        "core/retention/test_keepers.py::it_says_why_a_commit_is_kept",
    ),
    "explain: what would have to change for it to go or stay": (
        f"{EXPLAIN}::it_names_only_changes_that_work",
        f"{EXPLAIN}::it_finds_the_fewest_days_that_reach_a_date",
        f"{EXPLAIN}::it_says_what_deleting_a_branch_would_let_go",
    ),
    "explain: if gone, since when it could be": (
        f"{EXPLAIN}::it_says_what_the_verdicts_say",
        f"{EXPLAIN_GOLDEN}::test_it_agrees_with_the_server_for_every_commit_and_with_the_rule_until_when",
    ),
    "explain agrees with the simulation for every object of the golden cases": (
        f"{EXPLAIN_GOLDEN}::test_it_agrees_with_the_simulation_for_every_object",
    ),
    "a reason for every object in reports": (
        f"{EXPLAIN_APP}::it_has_a_word_for_every_fate",
        f"{GRAPH}::it_gives_the_reasons_that_explain_gives",
        "golden/test_simulate.py::test_objects_are_those_that_the_official_collector_marked",
    ),
    # ---- policy tests
    "policy tests: commits with ages and parents, branches, tags, staged data": (
        f"{POLICY_TEST}::it_keeps_staged_data_and_what_another_path_holds",
        "docs/test_readme_policy_test.py::it_passes_as_it_stands",
    ),
    "policy tests: under the tree's own rules": (
        f"{POLICY_TEST}::it_judges_by_the_trees_own_rules",
        f"{POLICY_TEST}::it_resolves_patterns_over_the_drawn_branches",
        f"{POLICY_CLI}::it_exits_1_when_the_tree_no_longer_keeps_what_must_survive",
    ),
    "policy tests: no server, no Spark": (f"{POLICY_CLI}::it_needs_neither_a_server_nor_spark",),
    "policy tests: failures show the drawn graph with the difference": (
        f"{POLICY_TEST}::it_shows_the_drawn_graph_with_the_difference",
        "render/test_policy_test.py::it_looks_as_reviewed",
    ),
    # ---- import, export, drift, history, doctor, init
    "import: a plan right after shows no changes": (
        f"{IMPORT}::it_writes_a_tree_after_which_a_plan_shows_no_changes",
        f"{POLICIES}::it_writes_a_tree_after_which_a_plan_shows_no_changes",
        f"{IMPORT_APP}::it_asks_for_exactly_what_was_stored",
    ),
    "import: --split, equal rules become profiles": (
        f"{IMPORT_APP}::it_splits_into_files",
        f"{IMPORT_APP}::it_factors_equal_rules_into_profiles",
    ),
    "import --from-files and export --format lakectl": (f"{IMPORT}::it_goes_from_files_to_a_tree_and_back",),
    "drift: server-edited": (
        f"{DRIFT_CORE}::it_calls_a_value_that_differs_from_the_applied_one_server_edited",
        f"{POLICIES}::it_is_a_hand_edit_of_a_policy",
    ),
    "drift: tree-ahead": (
        f"{DRIFT_CORE}::it_calls_what_the_tree_changed_tree_ahead",
        f"{DRIFT_ITEMS}::it_calls_what_the_tree_changed_tree_ahead",
    ),
    "drift: patterns-stale": (f"{DRIFT}::it_tells_new_branches_from_an_edited_tree",),
    "drift: released, unmanaged-new": (
        f"{DRIFT}::it_finds_what_the_tree_let_go_and_what_came_without_an_entry",
        f"{POLICIES}::it_is_what_stays_when_the_entry_goes",
        f"{DRIFT_CORE}::it_calls_repositories_new_that_are_younger_than_the_last_apply",
    ),
    "drift: --fail-on CLASS": (f"{DRIFT}::it_fails_only_on_the_classes_that_are_named",),
    "drift: order and equal durations are never drift": (
        f"{DRIFT_CORE}::it_is_silent_right_after_an_apply",
        f"{DRIFT_ITEMS}::it_is_none_where_all_three_agree_in_any_order_and_with_ids_of_the_server",
        f"{POLICIES}::it_is_none_after_an_apply_and_after_a_reordering",
    ),
    "history: who applied what": (
        f"{HISTORY}::it_lists_the_newest_first",
        f"{HISTORY}::it_shows_one_run",
        f"{POLICIES}::it_lists_and_shows_what_a_run_replaced",
    ),
    "history rollback: a plan, never a write": (
        f"{HISTORY}::it_makes_a_plan_that_apply_takes_and_writes_nothing_to_the_server",
        f"{POLICIES}::it_rolls_them_back_by_a_plan_once_the_tree_asks_for_them",
    ),
    "doctor: permissions one by one, --for plan|apply|lifecycle|sweep": (
        f"{DOCTOR}::it_names_the_one_permission_that_is_missing",
        f"{DOCTOR}::it_tries_what_can_be_tried_and_deletes_nothing",
        f"{DOCTOR}::it_tries_the_storage_and_leaves_it_as_it_was",
    ),
    "doctor: minimal policies for lakeFS, S3 and Azure are documented": (
        "docs/test_permissions.py::it_documents_every_permission_that_messages_name",
        "docs/test_permissions.py::it_has_policies_that_can_be_pasted",
    ),
    "doctor: version and flavour, clock skew": (
        f"{DOCTOR}::it_knows_an_edition_that_the_tree_expects_and_the_server_is_not",
        f"{DOCTOR_APP}::it_judges_a_clock",
    ),
    "doctor: storage access, Azure soft delete": (
        f"{DOCTOR_APP}::it_names_what_is_denied_and_cleans_up",
        f"{DOCTOR_APP}::it_says_what_a_store_does_with_deleted_data",
    ),
    "doctor: Java and Spark": (f"{DOCTOR}::it_starts_spark", f"{DOCTOR}::it_says_how_to_get_java"),
    "doctor: values the server stored but should not have": (
        f"{DOCTOR}::it_names_what_a_server_stores_but_should_not_have",
        f"{DOCTOR_APP}::it_lists_nonsense_and_leaves_sense_alone",
    ),
    "init: a tree with CI": (
        f"{INIT}::it_writes_a_tree_that_can_be_planned_at_once",
        f"{INIT}::it_brings_the_workflows_with_the_variables_of_the_server",
    ),
    # ---- gates
    "gates: all of them, now and at +7 and +30 days": (
        f"{GATES}::it_refuses",
        f"{GATES}::it_judges_every_horizon_and_takes_the_worst",
        "core/planning/test_settings_in_plans.py::it_counts_branches_at_the_worst_moment",
        "app/lifecycle/test_tag_gate.py::it_deletes_no_branch_whose_tags_would_lose_data",
    ),
    "gates: overrides in the tree": (
        f"{GATES}::it_opens_by_override_within_its_bounds",
        f"{PLAN}::it_opens_by_a_reviewed_override",
    ),
    "plan --base: the stricter of both versions of safety and bounds": (
        f"{LOOSENING}::it_lets_through_exactly_what_both_let_through",
        f"{BASE}::it_is_judged_by_the_stricter_limits_and_shows_every_loosening_first",
        f"{BASE}::it_refuses_days_outside_the_bounds_of_the_base",
    ),
    "plan --base: the stricter of both versions of holds and sweep": (
        f"{BASE}::it_sweeps_no_looser_than_the_base_held",
        "core/test_strictness.py::it_holds_what_either_holds_and_for_as_long",
        "core/test_strictness.py::it_never_gives_up_what_is_strictest",
    ),
    "plan --base: every loosening first": (
        f"{MARKDOWN}::it_puts_loosenings_before_gates_and_gates_before_changes",
        f"{BASE}::it_lists_holds_and_sweeps_of_repositories",
        f"{BASE}::it_lists_a_sweep_that_a_new_entry_makes_looser_than_the_defaults",
    ),
    "gates: the plan is shown whole, with BLOCKED and what opens it, and records it": (
        f"{PLAN}::it_blocks_shows_and_records_what_opens_it",
    ),
    "gates: --force opens none": (
        f"{PLAN}::it_does_not_open_from_a_pipeline_by_a_flag_of_apply",
        f"{PLAN}::it_blocks_shows_and_records_what_opens_it",
    ),
    # ---- pull requests
    "comment: one summary line, a table per repository, details folded": (
        f"{MARKDOWN}::it_has_one_summary_line_before_everything_else",
        f"{MARKDOWN}::it_has_a_table_and_folded_details_for_every_repository_that_changes",
    ),
    "comment: cut sensibly at the host's limit": (
        f"{MARKDOWN}::it_keeps_a_large_plan_within_it_and_says_what_was_cut",
        f"{MARKDOWN}::it_drops_details_before_tables_and_keeps_every_blocked_gate",
        f"{HOSTS}::it_stays_within_the_limit_of_a_comment",
    ),
    "comment: a stable marker, updated and not repeated": (
        f"{MARKDOWN}::it_begins_with_a_marker_that_other_plans_of_the_tree_share",
        f"{HOSTS}::it_updates_our_comment_however_far_back_it_is",
        f"{HOSTS}::it_updates_its_own_note_and_nobody_elses",
    ),
    "--format github: annotations on the YAML's lines": (
        f"{GITHUB}::it_puts_refused_gates_on_the_line_of_their_entry",
        f"{GITHUB}::it_annotates_the_problems_of_a_tree",
    ),
    "--format junit, json, several at once": (
        f"{JUNIT}::it_counts_every_gate_and_repository_once",
        f"{BASE}::it_gives_several_formats_at_once_and_again_from_the_file",
    ),
    "workflows: plan of the merge commit with a comment": (
        f"{CI}::it_plans_the_merge_commit_against_its_first_parent",
        f"{STORY}::it_comments_and_keeps_the_plan_also_when_a_gate_refuses",
    ),
    "workflows: forks get validate and test only": (
        f"{CI}::it_gives_forks_validate_and_test_alone_and_no_secret",
        f"{CI}::it_gives_forks_validate_and_test_alone",
    ),
    "workflows: apply finds the plan by pull request and head commit": (
        f"{CI}::it_names_the_plan_by_pull_request_and_head_commit",
        f"{HOSTS}::it_finds_the_newest_plan_of_the_merged_head",
        f"{HOSTS}::it_keeps_a_plan_and_finds_it_by_merge_request_and_head",
    ),
    "workflows: protected environment, one at a time, never cancelled half-way": (
        f"{CI}::it_applies_in_a_protected_environment_one_at_a_time_never_cancelled",
    ),
    "workflows: nightly drift; every step is run": (
        f"{STORY}::it_plans_on_the_pull_request_applies_on_merge_and_notices_a_hand_on_the_server",
        f"{STORY}::it_tells_the_same_story_on_gitlab",
    ),
    "a pre-commit hook": (f"{CI}::it_validates_what_is_staged_and_not_what_lies_around",),
    "examples from one repository to a tree of teams, each run": (
        f"{TREES}::it_gives_one_repository_its_rules",
        f"{TREES}::it_gives_teams_their_profiles_and_lets_the_exact_and_the_specific_win",
        f"{TREES}::it_plans_against_a_server",
    ),
    # ---- the report page
    "report: one self-contained file, no network": (
        f"{PAGE}::it_asks_nothing_of_any_network",
        f"{BROWSER}::it_begins_without_a_word_on_the_console_and_asks_only_for_itself",
    ),
    "report: impact per repository and prefix, the retention curve": (
        f"{PAGE}::it_says",
        "cli/test_report.py::it_draws_a_curve",
    ),
    "report: timeline of what expires when": (f"{PAGE_DATA}::it_says_which_commits_go_on_which_day",),
    "report: the commit graph by verdict, reasons on hover": (
        f"{GRAPH}::it_says_what_becomes_of_every_commit",
        f"{BROWSER}::it_draws_the_colours_of_verdicts",
        f"{BROWSER}::it_tells_the_reason_under_the_mouse",
    ),
    "report: branches by age and idleness": (f"{PAGE_DATA}::it_dates_branches_by_their_commits",),
    "report: readable at 10,000 commits": (f"{BROWSER}::it_takes_ten_thousand_commits",),
    "report: light and dark": (
        f"{PAGE}::it_has_a_light_palette_and_one_dark_one_in_two_places",
        f"{BROWSER}::it_has_the_colours_of_the_system_or_the_chosen_ones",
    ),
    "report: keyboard and screen readers": (
        f"{BROWSER}::it_can_be_walked_by_the_keyboard_alone",
        f"{BROWSER}::it_says_in_every_entry_what_becomes_of_it_and_why",
        f"{PAGE}::it_gives_no_id_twice_and_labels_every_control",
    ),
    "report: the page is kept and linked by the workflows; its document has a schema": (
        f"{STORY}::it_plans_on_the_pull_request_applies_on_merge_and_notices_a_hand_on_the_server",
        "schemas/test_report_schema.py::it_describes_what_a_page_embeds",
    ),
    # ---- the story
    "the worked pull-request story is one test": (
        f"{STORY}::it_plans_on_the_pull_request_applies_on_merge_and_notices_a_hand_on_the_server",
    ),
}


@pytest.mark.parametrize("phrase", PHRASES)
def it_is_shown_by_tests_of_these_names(phrase: str) -> None:
    assert PHRASES[phrase]
    assert missing(PHRASES[phrase]) == []
