"""What somebody sees in Flower is what its API says, and what `zubble batch show` and `task ls` say."""

from __future__ import annotations

import re
from collections import Counter

import httpx
import pytest

from .conftest import TASKS, VIEWER

SHOWN = re.compile(r"(?P<outcome>[\w:]+) \$(?P<usd>\d+\.\d{4}) (?P<iterations>\d+)-it")


def rows(page, table: str) -> list[dict[str, str]]:
    """A table's rows as they are on the page, by the column's heading in small letters."""
    page.wait_for_function("name => document.querySelectorAll(`${name} tbody tr td`).length > 1", arg=table)
    headings = [
        text.strip().lower()
        for text in page.locator(f"{table} thead tr").first.locator("th").all_text_contents()
    ]
    return [
        dict(
            zip(
                headings,
                (text.replace("\n", "").strip() for text in row.locator("td").all_inner_texts()),
                strict=False,
            )
        )
        for row in page.locator(f"{table} tbody tr").all()
    ]


def details(page) -> dict[str, str]:
    """The page of one thing: what stands beside each name."""
    names = [text.strip() for text in page.locator("dl.detail-list dt").all_text_contents()]
    values = [text.strip() for text in page.locator("dl.detail-list dd").all_text_contents()]
    return dict(zip(names, values, strict=True))


def shown(text: str) -> tuple[str, float, int]:
    """Outcome, USD and iterations, as a result or an exception tells them."""
    found = SHOWN.search(text)
    assert found, text
    return found["outcome"], float(found["usd"]), int(found["iterations"])


def seconds(text: str) -> float:
    """Of less than a minute, as Flower writes it."""
    number, _, unit = text.partition(" ")
    return float(number) * {"ms": 0.001, "s": 1.0}[unit]


@pytest.fixture
def listed(page, site):
    """The rows of the list of tasks, by message id."""
    page.goto(f"{site.address}/tasks")
    return {row["uuid"]: row for row in rows(page, "#tasks-table")}


def test_the_list_shows_each_attempt_with_the_state_and_ending_that_the_records_have(listed, site, picture):
    picture("flower-tasks")
    tasks, api = site.tasks(), site.api("tasks")
    assert len(tasks) == len(TASKS) + 1
    assert listed.keys() == tasks.keys() == api.keys()
    for uuid, row in listed.items():
        assert row["state"] == api[uuid]["state"] == ("FAILURE" if "before" in uuid else "SUCCESS")
        said = row["exception"] if row["state"] == "FAILURE" else row["result"]
        assert said == (api[uuid]["exception"] if row["state"] == "FAILURE" else api[uuid]["result"])
        ending = tasks[uuid]["ending"]
        assert shown(said) == (ending["outcome"], round(ending["spend_usd"], 4), ending["iterations_used"])
        assert row["worker"] == api[uuid]["worker"] == f"zubble@{tasks[uuid]['worker']}"


def test_the_endings_on_the_page_add_up_to_what_the_batch_shows(listed, site):
    batch = site.batch()
    endings = [shown(row["result"] or row["exception"]) for row in listed.values()]
    assert Counter(outcome for outcome, _, _ in endings) == batch["outcomes"]
    assert sum(usd for _, usd, _ in endings) == pytest.approx(batch["spend_usd"], abs=0.0001 * len(endings))
    assert batch["outcomes"] == {"verified": 6, "failed": 2, "invalid": 1}


def test_the_list_can_be_filtered_by_state(page, site):
    page.goto(f"{site.address}/tasks")
    rows(page, "#tasks-table")
    page.click("button[data-task-state=FAILURE]")
    page.wait_for_function("() => document.querySelectorAll('#tasks-table tbody tr').length == 1")
    [row] = rows(page, "#tasks-table")
    assert "good-before" in row["uuid"]


def test_the_page_of_an_attempt_shows_its_header_state_and_runtime_and_no_text_of_the_task(
    page, site, picture
):
    for uuid, task in site.tasks().items():
        page.goto(f"{site.address}/task/{uuid}")
        if task["source_id"] == "bad-1":
            picture("flower-task")
        found, info = details(page), site.api(f"task/info/{uuid}")
        assert (found["Name"], found["Status"]) == ("zubble.attempt", info["state"])
        assert found["Arguments"] == "()"
        header = found["Keyword arguments"]
        assert f"'task_id': '{task['task_id']}', 'batch': 'b'" in header
        assert "'attempt': 1, 'round': 1" in header
        assert "'max_spend_usd': 5.0" in header
        assert "This is task" not in page.content()
        assert found["Worker"] == f"zubble@{task['worker']}"
        if info["state"] == "SUCCESS":
            assert 0 < info["runtime"] <= info["succeeded"] - info["received"]
            assert seconds(found["Runtime"]) == pytest.approx(info["runtime"], abs=0.006)


def test_the_pages_of_the_workers_count_every_attempt_once(page, site, picture):
    page.goto(f"{site.address}/workers")
    page.wait_for_selector("#workers-table tbody tr")
    picture("flower-workers")
    taken = Counter(f"zubble@{task['worker']}" for task in site.tasks().values())
    known = site.api("workers?refresh=1")
    assert taken.keys() <= known.keys()
    assert len(known) == 2
    for name, worker in known.items():
        page.goto(f"{site.address}/worker/{name}")
        pool = dict(re.findall(r"(Max concurrency|Threads)\s+(\d+)", page.locator("#tab-pool").inner_text()))
        assert pool == {"Max concurrency": "2", "Threads": "2"}
        page.click("#worker-tab-tasks")
        said = page.locator("#tab-tasks table").first.inner_text()
        assert dict(re.findall(r"(zubble\.attempt)\s+(\d+)", said)) == _counted(taken[name])
        assert worker["stats"]["total"] == ({"zubble.attempt": taken[name]} if taken[name] else {})


def _counted(number: int) -> dict[str, str]:
    return {"zubble.attempt": str(number)} if number else {}


def test_nothing_can_be_changed_there(page, site):
    [name, *_] = site.api("workers?refresh=1")
    page.goto(f"{site.address}/worker/{name}")
    assert page.locator("#worker-shutdown, #worker-pool-grow, button.btn-danger").count() == 0
    answer = httpx.post(f"{site.address}/api/worker/shutdown/{name}", auth=VIEWER)
    assert answer.status_code == 403, answer.text
    assert len(site.user.workers()) == 2


def test_without_the_password_nothing_is_shown_but_metrics_and_health(browser, site):
    with browser.new_context() as stranger:
        page = stranger.new_page()
        statuses = {
            path: page.request.get(f"{site.address}/{path}").status
            for path in (
                "",
                "tasks",
                "workers",
                "api/tasks",
                "api/workers",
                "broker",
                "metrics",
                "healthcheck",
            )
        }
    assert {path for path, status in statuses.items() if status == 200} == {"metrics", "healthcheck"}
    assert {status for path, status in statuses.items() if path not in {"metrics", "healthcheck"}} == {401}


def test_the_runtimes_are_counted_up_to_the_longest_that_a_task_may_take(page, site):
    text = page.request.get(f"{site.address}/metrics").text()
    buckets = re.findall(r'flower_task_runtime_seconds_bucket\{le="([^"]+)"', text)
    assert list(dict.fromkeys(buckets))[-3:] == ["1800.0", "3600.0", "+Inf"]
    succeeded = re.findall(r'flower_events_total\{[^}]*type="task-succeeded"[^}]*\} (\S+)', text)
    assert sum(map(float, succeeded)) == len(TASKS)
