"""Which tests carry out which attack; `script/attack-table` runs them and writes the result into the docs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Attack:
    """One line of the table."""

    what: str
    where: str
    """The test file without `test_` and `.py`, below tests/."""
    tests: tuple[str, ...]
    """Names without `test_`; all of them must pass."""


FILES, KERNEL, OUTPUT = "abuse/files", "abuse/kernel", "abuse/output"
NEIGHBOURS, SECRETS = "abuse/neighbours_and_network", "abuse/secrets_and_processes"
RESOURCES, LIMITS, STARTING = "abuse/resources", "abuse/limits", "abuse/starting_and_ending"
NAMES, REQUESTS, INSIDE = "abuse/egress/names", "abuse/egress/requests", "abuse/egress/in_sandboxes"
PODS, STREAMS, MANIFESTS = (
    "integration/pods/pods",
    "integration/pods/streams",
    "unit/sandbox/pod_manifests",
)

ATTACKS: Final[dict[int, tuple[Attack, ...]]] = {
    1: (Attack("read the host's files", SECRETS, ("the_hosts_files_are_not_there",)),),
    2: (
        Attack(
            "find the worker's key in any environment",
            SECRETS,
            ("a_key_of_the_worker_is_nowhere_inside", "only_the_three_standard_descriptors_are_open"),
        ),
    ),
    3: (
        Attack(
            "read tokens, prompts, host paths in command lines and mounts",
            SECRETS,
            ("no_process_names_the_task_or_a_path_of_the_host", "mounts_name_no_folder_of_the_host"),
        ),
    ),
    4: (
        Attack(
            "look into the supervisor through /proc",
            SECRETS,
            ("the_supervisor_cannot_be_looked_into", "the_supervisor_holds_no_folder_of_the_host"),
        ),
    ),
    5: (Attack("use an inherited descriptor", SECRETS, ("only_the_three_standard_descriptors_are_open",)),),
    6: (
        Attack(
            "write kernel settings",
            KERNEL,
            (
                "no_setting_of_the_kernel_can_be_written",
                "no_dangerous_file_of_proc_can_be_written",
                "no_process_of_a_sandbox_is_root_on_the_host",
            ),
        ),
    ),
    7: (Attack("make namespaces", KERNEL, ("namespaces_cannot_be_made", "the_program_unshare_fails_too")),),
    8: (
        Attack(
            "mount, unmount, pivot, chroot",
            KERNEL,
            ("mounts_cannot_be_changed", "forbidden_system_calls_are_refused"),
        ),
    ),
    9: (
        Attack(
            "make or open devices",
            KERNEL,
            ("devices_of_the_host_are_not_there", "a_device_node_cannot_be_made_anywhere"),
        ),
    ),
    10: (Attack("gain by setuid programs", KERNEL, ("setuid_programs_give_no_privilege",)),),
    11: (Attack("trace the supervisor", SECRETS, ("the_supervisor_cannot_be_traced",)),),
    12: (Attack("kill or stop the supervisor", SECRETS, ("the_supervisor_survives_every_signal",)),),
    13: (Attack("type into the worker's terminal", KERNEL, ("nothing_is_typed_into_the_workers_terminal",)),),
    14: (Attack("read the worker's keyring", KERNEL, ("a_key_of_the_workers_keyring_cannot_be_read",)),),
    15: (
        Attack("io_uring, bpf, perf, userfaultfd, handles", KERNEL, ("forbidden_system_calls_are_refused",)),
    ),
    16: (
        Attack(
            "vsock, packet, netlink, raw sockets",
            KERNEL,
            (
                "only_ordinary_sockets_can_be_made",
                "high_bits_do_not_smuggle_a_family_or_a_request_past_the_filter",
            ),
        ),
    ),
    17: (Attack("fork bomb", RESOURCES, ("a_fork_bomb_is_bounded_and_a_neighbour_works_on",)),),
    18: (
        Attack(
            "memory bomb, in one process and in twenty",
            LIMITS,
            (
                "a_memory_bomb_is_killed_and_called_by_its_name",
                "a_memory_bomb_of_twenty_processes_is_killed_as_one",
            ),
        ),
    ),
    19: (
        Attack(
            "fill every file system",
            RESOURCES,
            (
                "each_writable_place_is_full_at_its_size",
                "every_other_place_takes_nothing",
                "what_was_filled_is_free_after_destroying",
            ),
        ),
    ),
    20: (Attack("millions of empty files", RESOURCES, ("many_empty_files_are_destroyed_in_time",)),),
    21: (Attack("a sparse file of 1 TiB", RESOURCES, ("a_sparse_file_is_refused_by_its_size",)),),
    22: (
        Attack(
            "eight spinning processes",
            LIMITS,
            ("eight_busy_processes_share_the_processor_time_of_one_sandbox",),
        ),
    ),
    23: (
        Attack(
            "use up descriptors, inotify, epoll",
            RESOURCES,
            ("descriptors_run_out_inside_only", "inotify_and_epoll_run_out_inside_only"),
        ),
    ),
    24: (
        Attack(
            "endless output",
            OUTPUT,
            (
                "a_flood_of_output_is_counted_and_costs_no_memory",
                "endless_output_is_stopped_by_the_deadline",
            ),
        ),
    ),
    25: (
        Attack(
            "huge lines, NUL, invalid UTF-8, escapes",
            OUTPUT,
            ("one_line_without_end_is_kept_by_its_two_ends", "strange_bytes_arrive_as_they_were"),
        ),
    ),
    26: (Attack("imitate the protocol on stdout", OUTPUT, ("output_that_imitates_a_result_is_output",)),),
    27: (Attack("write to the control line", SECRETS, ("the_control_line_cannot_be_reached",)),),
    28: (
        Attack("ignore signals past the deadline", OUTPUT, ("a_deadline_is_kept_whatever_the_command_does",)),
    ),
    29: (Attack("daemons past the command's end", OUTPUT, ("no_daemon_survives_its_command",)),),
    30: (
        Attack("hold the output open", OUTPUT, ("a_daemon_that_holds_the_output_does_not_hold_the_result",)),
    ),
    31: (Attack("stop itself past the deadline", OUTPUT, ("a_deadline_is_kept_whatever_the_command_does",)),),
    32: (
        Attack(
            "outlive a killed worker",
            STARTING,
            (
                "a_worker_killed_during_a_command_leaves_nothing",
                "a_worker_killed_while_it_opens_leaves_nothing",
                "a_sandbox_of_a_dead_worker_is_found_and_killed",
            ),
        ),
    ),
    33: (
        Attack(
            "die with the thread that asked", STARTING, ("a_sandbox_opened_in_a_short_lived_thread_lives_on",)
        ),
    ),
    34: (
        Attack(
            "a late result after the lease was lost",
            "contract/store/sealing",
            (
                "a_late_seal_is_refused_after_the_task_was_given_to_another",
                "nothing_can_be_written_after_the_seal",
            ),
        ),
    ),
    35: (Attack("connect to servers of the host", NEIGHBOURS, ("servers_of_the_host_cannot_be_reached",)),),
    36: (
        Attack(
            "metadata services through the proxy",
            NAMES,
            (
                "a_metadata_name_is_denied_although_it_was_allowed",
                "an_allowed_name_that_leads_inside_is_denied",
            ),
        ),
    ),
    37: (Attack("sockets planted on the host", NEIGHBOURS, ("servers_of_the_host_cannot_be_reached",)),),
    38: (Attack("names as a way out", NEIGHBOURS, ("names_are_not_resolved",)),),
    39: (
        Attack(
            "tricks with names at the proxy",
            NAMES,
            (
                "a_host_that_is_not_on_the_list_is_denied_logged_and_not_even_looked_up",
                "odd_bytes_in_a_name_are_no_request",
            ),
        ),
    ),
    40: (
        Attack(
            "a name that changes between check and dial",
            NAMES,
            (
                "a_name_that_changes_between_the_check_and_the_dial_changes_nothing",
                "an_allowed_name_that_leads_inside_is_denied",
            ),
        ),
    ),
    41: (
        Attack(
            "another SNI or Host, ports, smuggling, endless heads",
            REQUESTS,
            (
                "a_tunnel_whose_hello_names_another_host_is_closed_before_a_byte_goes_out",
                "a_port_that_was_not_allowed_is_denied",
                "a_host_header_that_names_another_host_is_refused",
                "nothing_is_smuggled_behind_a_request",
                "a_head_without_an_end_is_refused_and_not_kept",
            ),
        ),
    ),
    42: (
        Attack("an empty or malformed list", NAMES, ("an_empty_list_denies_everything",)),
        Attack("an empty list, from inside", INSIDE, ("an_empty_list_reaches_nothing",)),
    ),
    44: (Attack("a link left for the worker", FILES, ("a_link_left_for_the_worker_is_not_followed",)),),
    45: (
        Attack(
            "swap a folder for a link",
            FILES,
            ("a_folder_swapped_for_a_link_never_shows_what_is_outside",),
        ),
    ),
    46: (Attack("hard links to the host", FILES, ("a_file_of_the_host_cannot_be_linked_or_written",)),),
    47: (
        Attack(
            "FIFOs, sockets, devices in the tree",
            FILES,
            ("special_files_are_left_out_and_block_nobody",),
        ),
    ),
    48: (Attack("setuid files that come out", FILES, ("setuid_bits_do_not_come_out",)),),
    49: (
        Attack(
            "strange file names",
            FILES,
            ("a_strange_name_makes_the_round_trip", "a_name_that_leads_elsewhere_is_refused"),
        ),
    ),
    50: (
        Attack(
            "a tree 5,000 deep, closed folders",
            FILES,
            ("a_tree_of_depth_5000_and_closed_folders_can_be_handled",),
        ),
    ),
    51: (
        Attack(
            "copy in through a link",
            FILES,
            (
                "a_target_that_is_a_link_is_refused_and_not_replaced",
                "a_name_that_leads_elsewhere_is_refused",
            ),
        ),
    ),
    52: (
        Attack(
            "a malicious tar",
            FILES,
            (
                "a_malicious_tar_writes_nothing_outside",
                "a_bomb_of_a_tar_is_stopped_by_the_size_of_the_place",
            ),
        ),
    ),
    53: (
        Attack(
            "plant git settings for the host",
            FILES,
            ("nothing_planted_in_the_work_tree_runs_on_the_host",),
        ),
    ),
    54: (
        Attack(
            "plant start-up files for the host",
            FILES,
            ("nothing_planted_in_the_work_tree_runs_on_the_host",),
        ),
    ),
    55: (
        Attack(
            "write to programs and the supervisor",
            FILES,
            (
                "a_file_of_the_host_cannot_be_linked_or_written",
                "the_supervisors_own_program_cannot_be_reached_or_changed",
            ),
        ),
    ),
    56: (Attack("poison the next sandbox", FILES, ("the_next_sandbox_sees_nothing_of_the_last",)),),
    57: (Attack("reach the sandbox next door", NEIGHBOURS, ("two_sandboxes_do_not_see_each_other",)),),
    58: (
        Attack(
            "inject arguments and variables",
            FILES,
            (
                "a_command_is_data_for_every_launcher",
                "a_variable_that_is_none_is_refused",
                "loader_variables_reach_the_command_only",
            ),
        ),
    ),
    59: (Attack("start outside the work tree", FILES, ("a_command_does_not_start_outside",)),),
    60: (
        Attack("set the clock", KERNEL, ("the_clock_of_the_host_cannot_be_set",)),
        Attack("outwit a deadline by the clock", STARTING, ("a_deadline_does_not_follow_the_wall_clock",)),
    ),
    61: (Attack("core dumps", KERNEL, ("a_crash_writes_no_core_and_starts_no_handler",)),),
    62: (Attack("wait for input", OUTPUT, ("a_command_that_asks_gets_no_answer_and_ends",)),),
    63: (Attack("mix exit, signal, timeout", OUTPUT, ("exit_signal_and_timeout_are_never_mixed",)),),
    64: (
        Attack(
            "a sandbox that cannot start",
            STARTING,
            (
                "without_a_working_bwrap_nothing_runs",
                "a_bwrap_that_isolates_nothing_is_not_used",
                "without_libseccomp_nothing_runs",
                "without_the_supervisors_program_nothing_is_opened",
            ),
        ),
    ),
    65: (
        Attack(
            "ask for privileges in a forged record",
            "integration/worker/forged_records",
            ("a_forged_record_is_sealed_invalid_and_runs_nothing",),
        ),
    ),
    66: (
        Attack(
            "kill the engine or the relay",
            "integration/docker/containers",
            ("a_killed_relay_costs_no_command_and_runs_none_twice",),
        ),
        Attack(
            "kill the engine",
            "integration/docker/engine_restarts",
            ("a_killed_engine_loses_sandboxes_with_a_sentence_and_they_are_reaped_by_label",),
        ),
    ),
    67: (
        Attack(
            "a pod outside the level `restricted`",
            MANIFESTS,
            (
                "a_pod_passes_the_level_restricted",
                "a_pod_has_no_way_to_the_cluster",
                "a_pod_ends_by_itself_and_is_never_started_again",
                "requests_are_limits_and_hold_what_the_volumes_in_memory_may",
            ),
        ),
    ),
    68: (
        Attack(
            "cut, silent, lying streams of a pod",
            STREAMS,
            (
                "a_stream_cut_at_random_bytes_runs_a_command_once_and_tells_its_end",
                "an_end_of_the_stream_is_no_end_of_the_command",
                "a_pod_that_is_not_the_same_any_more_is_an_explicit_failure",
                "a_command_with_four_mebibytes_of_input_gets_them_whole",
            ),
        ),
    ),
    69: (
        Attack(
            "a network policy that nobody enforces",
            PODS,
            ("where_the_policy_is_not_enforced_no_sandbox_is_opened",),
        ),
    ),
    70: (
        Attack(
            "many in a row and at once",
            STARTING,
            ("many_in_a_row_and_many_at_once_leave_nothing", "as_many_as_asked_live_at_once"),
        ),
    ),
    71: (
        Attack(
            "flood or starve the forwarder",
            "abuse/egress/forwarder",
            (
                "clients_that_say_nothing_are_gone_when_the_proxy_has_closed_on_them",
                "a_client_that_pours_meets_its_end_in_bounded_room",
            ),
        ),
    ),
    72: (
        Attack(
            "secrets in logs",
            "unit/queue/redaction",
            ("an_exception_whose_text_holds_a_secret_is_logged_without_it",),
        ),
    ),
}
"""By number. 43 comes with the gateway for agents that run inside the sandbox."""
