"""What the documents say of branch lifecycle (branch-lifecycle.md), sentence by sentence, and the tests that
show it, by name. A name that is no test any more fails here."""

from __future__ import annotations

import pytest

from tests.documented import missing

CONFIG = "config/test_policies.py"
CORE = "core/lifecycle/test_documented.py"
WRITES = "e2e/lifecycle/test_writes.py"
DELETION = "e2e/lifecycle/test_deletion.py"
RUNNING = "e2e/lifecycle/test_lifecycle.py"
RUN = "app/lifecycle/test_run.py"
INTERRUPTED = "app/lifecycle/test_interrupted.py"
PUSH = "app/test_write_settings.py"
POLICIES = "e2e/test_policies.py"
SERVER = "e2e/test_server_branches.py"
WIRE = "contract/test_enterprise_settings.py"
SANDBOX = "contract/test_enterprise.py"
PERMISSIONS = "adapters/lakefs/test_lifecycle_permissions.py"

SENTENCES: dict[str, tuple[str, ...]] = {
    # ---- a policy
    "patterns: one or more": (f"{CONFIG}::it_needs_at_least_one_pattern",),
    "patterns: glob or literal, *, ?, [abc]": (f"{CORE}::it_has_globs_or_literals",),
    "patterns: any of them": (f"{CORE}::it_matches_when_any_of_its_patterns_does",),
    "max_age: since creation": (f"{CORE}::it_counts_max_age_since_creation",),
    "max_idle_age: since the last write": (f"{CORE}::it_counts_max_idle_age_since_the_last_write",),
    "at least one of the two": (f"{CONFIG}::it_needs_at_least_one_of_the_two_ages",),
    "both crossed where both are given": (f"{CORE}::it_needs_both_thresholds_crossed_when_both_are_given",),
    "description": (f"{CORE}::it_has_a_description_that_decides_nothing",),
    "id: at most 32 characters, no white space": (
        f"{CONFIG}::it_refuses_an_id_that_is_too_long_or_has_white_space",
        f"{CONFIG}::it_takes_an_id_of_32_characters_or_none",
    ),
    "id: unique": (f"{CONFIG}::it_refuses_two_policies_of_one_id",),
    "id: the server assigns one when there is none": (
        f"{WIRE}::it_reads_back_what_it_wrote_with_the_ids_of_the_server",
        f"{POLICIES}::it_sets_policies_and_then_has_nothing_to_do",
    ),
    "durations combine s, m, h, d, w": (f"{CONFIG}::it_reads_durations_of_seconds_to_weeks",),
    "durations are greater than zero": (f"{CONFIG}::it_refuses_durations_that_are_not_greater_than_zero",),
    "a pattern that matches the default branch is rejected": (
        f"{CORE}::it_may_not_match_the_default_branch_and_says_which_pattern_does",
        f"{POLICIES}::it_names_both_when_a_pattern_matches_the_default_branch",
        f"{DELETION}::it_refuses_policies_that_match_the_default_branch",
    ),
    # ---- which branches go
    "a branch goes by some policy that matches and is crossed": (
        f"{CORE}::it_takes_a_branch_that_one_policy_lets_go",
    ),
    "policies are walked top to bottom, those not crossed are skipped": (
        f"{CORE}::it_walks_policies_top_to_bottom_and_skips_those_not_crossed",
    ),
    "order decides only the recorded deleter": (
        f"{CORE}::it_records_the_first_crossed_policy_as_the_deleter",
        f"{CORE}::it_is_the_same_in_any_order",
        f"{POLICIES}::it_shows_a_reordering_as_no_effect",
    ),
    "exempt: the default branch": (f"{CORE}::it_exempts_the_default_branch",),
    "exempt: branches with no recorded creation time": (
        f"{CORE}::it_exempts_branches_with_no_recorded_creation_time",
        "core/settings/test_fates.py::it_exempts_branches_without_a_creation_time",
    ),
    "exempt: read-only repositories": (
        f"{CORE}::it_exempts_read_only_repositories",
        f"{DELETION}::it_leaves_read_only_repositories_alone",
    ),
    "no recorded last write: the creation time counts": (
        f"{CORE}::it_counts_the_creation_time_without_a_recorded_last_write",
    ),
    # ---- writes
    "a commit resets the idle clock": (f"{WRITES}::it_is_reset_by_a_commit",),
    "a merge does": (f"{WRITES}::it_is_reset_by_a_merge",),
    "a reset does": (f"{WRITES}::it_is_reset_by_a_reset_of_staged_changes",),
    "a revert and a cherry-pick do": (f"{WRITES}::it_is_reset_by_a_revert_and_a_cherry_pick",),
    "an import does": (f"{WRITES}::it_is_reset_by_an_import_which_ends_in_a_commit",),
    "a retarget does": (f"{WRITES}::it_is_reset_by_a_retarget",),
    "staging create, update and delete do": (f"{WRITES}::it_is_reset_by_staging",),
    "reads do not": (f"{WRITES}::it_is_not_reset_by_reads",),
    "unsynced Everest mounts do not": (
        f"{WRITES}::it_is_not_reset_by_an_everest_mount_and_the_plan_says_so",
        f"{POLICIES}::it_puts_the_everest_caveat_beside_idle_verdicts",
    ),
    # ---- deletion
    "deletion takes the standard path, hooks fire": (
        f"{DELETION}::it_asks_for_the_deletion_that_fires_both_hooks",
    ),
    "a pre-hook that refuses keeps the branch": (
        f"{DELETION}::it_takes_the_standard_path_so_a_pre_hook_that_refuses_keeps_the_branch",
        f"{RUN}::it_reports_a_hook_that_refuses_and_keeps_the_branch_and_its_age",
    ),
    "uncommitted changes are gone": (
        f"{DELETION}::it_loses_uncommitted_changes_and_says_how_many",
        f"{SERVER}::it_lists_uncommitted_changes_pull_requests_and_tags_of_branches_that_go",
    ),
    "tags and commits are untouched": (f"{DELETION}::it_leaves_tags_and_commits_untouched",),
    # ---- the server's job
    "the job: branch_lifecycle.schedule, cron": (
        f"{POLICIES}::it_names_them_and_when_the_first_deletion_can_come",
        "config/test_object_rules.py::it_is_a_cron_line_of_the_server",
    ),
    "the job: hourly by default": (
        f"{SERVER}::it_takes_the_server_s_job_for_hourly_unless_the_tree_tells_its_schedule",
        "core/test_cron.py::it_runs_within_an_hour_when_it_is_hourly",
    ),
    "the job: one instance at a time (lakeplan's own runs likewise)": (
        f"{INTERRUPTED}::it_processes_no_branch_twice",
        f"{RUNNING}::it_deletes_each_branch_once_when_two_run_at_once",
    ),
    # ---- set, get, clear
    "set: the current ETag is the precondition": (
        f"{PUSH}::it_records_heads_writes_with_if_match_and_reads_back",
        f"{WIRE}::it_refuses_another_etag",
        f"{POLICIES}::it_refuses_policies_that_were_edited_on_the_server_and_says_what_changed",
    ),
    "set: unless --force": (f"{PUSH}::it_sends_no_precondition_when_forced",),
    "set: answers with the canonical list and its ids": (
        f"{SANDBOX}::it_answers_with_the_list_and_assigned_ids",
    ),
    "the files of lakectl branch-lifecycle set -f": (
        f"{POLICIES}::it_takes_the_files_that_people_have_for_lakectl",
    ),
    "clear is idempotent": (
        f"{WIRE}::it_removes_them_as_often_as_asked",
        f"{POLICIES}::it_clears_only_through_its_gate",
    ),
    # ---- permissions
    "branches:GetBranchLifecyclePolicies": (f"{PERMISSIONS}::it_names_the_permission_to_read_policies",),
    "branches:SetBranchLifecyclePolicies": (
        f"{PERMISSIONS}::it_names_the_permission_to_set_policies",
        f"{POLICIES}::it_asks_first_whether_it_may",
    ),
    "fs:DeleteBranch": (f"{PERMISSIONS}::it_names_the_permission_to_delete_a_branch",),
    # ---- the wire, and open-source servers
    "the wire form and its other names": (
        f"{WIRE}::it_sends_policies_as_the_sdk_models_them",
        f"{WIRE}::it_answers_as_the_sdk_models_it",
        f"{CONFIG}::it_takes_the_newer_name_of_the_idle_age_but_not_both",
    ),
    "open source has no such endpoint": (
        f"{WIRE}::it_never_takes_a_server_without_the_feature_for_one_without_policies",
        f"{SANDBOX}::it_knows_no_lifecycle",
        f"{POLICIES}::it_is_an_error_under_the_engine_server",
    ),
    "open source has no times on branches": (
        f"{SANDBOX}::it_knows_no_times_of_branches",
        f"{RUN}::it_deletes_nothing_at_the_first_look_however_old_the_commits_are",
    ),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def it_is_shown_by_tests_of_these_names(sentence: str) -> None:
    assert SENTENCES[sentence]
    assert missing(SENTENCES[sentence]) == []
