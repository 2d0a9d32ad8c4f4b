"""The pod backend keeps the promises of every backend, over exec streams of a cluster in one process.

Those that travel differently here, or that a cluster has a part in, are tried each time, the others with the
slow tests: their other half is the same supervisor that every backend has.
"""

import pytest

from zubble_sandbox.conformance import KNOWN_GAPS, PROMISES

OWN = {
    "a_sandbox_is_adopted_after_its_worker_died",
    "a_sandbox_that_ends_with_its_worker_has_no_handle",
    "a_full_work_tree_refuses_and_keeps_what_it_had",
    "an_allow_list_is_kept_by_a_proxy_or_refused",
    "after_destroying_everything_is_refused_and_destroying_again_is_not",
    "arguments_arrive_byte_for_byte",
    "commands_find_the_work_tree_where_the_spec_says",
    "every_command_has_the_variables_of_its_spec",
    "freezing_also_stops_background_processes",
    "further_folders_are_empty_and_writable_and_no_part_of_the_work_tree",
    "large_output_on_both_streams_is_counted_and_bounded",
    "read_only_files_cannot_be_changed",
    "the_files_of_a_check_may_lie_elsewhere",
    "two_sandboxes_have_nothing_in_common",
}


def test_what_is_tried_each_time_is_promised():
    assert set(PROMISES) > OWN


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OWN else pytest.mark.slow) for name in PROMISES]
)
async def test_a_pod_keeps_the_promise(provider, name, request):
    if reason := KNOWN_GAPS.get((provider.name, name)):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    await PROMISES[name](provider)
