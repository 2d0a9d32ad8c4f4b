import pytest

from zubble_queue.contracts.envelope import BlobRef
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.record import Checkpoint
from zubble_queue.errors import LeaseLost
from zubble_queue.stores import leasing

SEGMENT = BlobRef(ref="sha256:" + "0" * 64, size=1)


@pytest.fixture
async def lease(world):
    return await world.running()


def trial(step, **fields):
    values = {"command": "ls", "exit_code": 0, "result_summary": "", "category": "diagnostic", "time": 1.0}
    return JournalEntry(step=step, **{**values, **fields})


async def test_events_come_back_as_they_were_written_in_their_order(world, lease):
    events = [world.event(seq, text="grün \u2028", number=seq, nothing=None) for seq in (2, 3, 4)]
    await world.store.append(lease, events[:1])
    await world.store.append(lease, events[1:])

    assert (await world.store.events(lease.task_id))[1:] == events


async def test_events_are_read_in_pages_behind_a_seq(world, lease):
    await world.store.append(lease, [world.event(seq) for seq in range(2, 12)])

    assert [event.seq for event in await world.store.events(lease.task_id, after=4, count=3)] == [5, 6, 7]
    assert await world.store.events(lease.task_id, after=11) == []


async def test_appending_again_after_a_lost_answer_adds_only_what_is_missing(world, lease):
    await world.store.append(lease, [world.event(2), world.event(3)])
    await world.store.append(lease, [world.event(2), world.event(3), world.event(4)])

    assert [event.seq for event in await world.store.events(lease.task_id)] == [1, 2, 3, 4]


@pytest.mark.parametrize("seqs", [(3,), (2, 4)])
async def test_a_gap_in_the_log_is_refused_and_nothing_of_it_is_written(world, lease, seqs):
    with pytest.raises(ValueError, match="go on from 1 without a gap"):
        await world.store.append(lease, [world.event(seq) for seq in seqs])

    assert [event.seq for event in await world.store.events(lease.task_id)] == [1]


async def test_an_event_over_64_kib_is_refused(world, lease):
    with pytest.raises(ValueError, match=r"event 2 \(noted\) has [\d,]+ bytes; 65,536 is the most"):
        await world.store.append(lease, [world.event(2, text="x" * leasing.EVENT_BYTES)])


async def test_a_live_log_that_is_never_checkpointed_is_bounded(world, lease, monkeypatch):
    monkeypatch.setattr(leasing, "LIVE_EVENT_BYTES", 1_000)
    with pytest.raises(ValueError, match="move them to a segment first"):
        await world.store.append(lease, [world.event(2, text="x" * 1_000)])

    await world.store.append(lease, [world.event(2, text="x" * 500)])
    await world.store.checkpoint(lease, Checkpoint(seq=2, segments=(SEGMENT,)))
    await world.store.append(lease, [world.event(3, text="x" * 500)])


async def test_a_checkpoint_with_segments_drops_what_they_hold_and_nothing_more(world, lease):
    await world.store.append(lease, [world.event(seq) for seq in range(2, 8)])
    await world.store.checkpoint(lease, Checkpoint(seq=5, segments=(SEGMENT,)))

    assert [event.seq for event in await world.store.events(lease.task_id)] == [6, 7]


async def test_a_checkpoint_without_segments_keeps_every_event(world, lease):
    await world.store.append(lease, [world.event(2)])
    await world.store.checkpoint(lease, Checkpoint(seq=2, snapshot=SEGMENT))

    assert [event.seq for event in await world.store.events(lease.task_id)] == [1, 2]


async def test_the_log_goes_on_where_it_was_after_everything_was_dropped(world, lease):
    await world.store.append(lease, [world.event(2)])
    await world.store.checkpoint(lease, Checkpoint(seq=2, segments=(SEGMENT,)))
    await world.store.append(lease, [world.event(3)])

    assert [event.seq for event in await world.store.events(lease.task_id)] == [3]


async def test_whoever_asks_for_dropped_events_gets_all_that_are_live(world, lease):
    await world.store.append(lease, [world.event(seq) for seq in range(2, 10)])
    await world.store.checkpoint(lease, Checkpoint(seq=2, segments=(SEGMENT,)))

    assert [event.seq for event in await world.store.events(lease.task_id)] == list(range(3, 10))
    assert [event.seq for event in await world.store.events(lease.task_id, after=1, count=2)] == [3, 4]


async def test_a_second_checkpoint_drops_from_where_the_first_one_stopped(world, lease):
    await world.store.append(lease, [world.event(seq) for seq in range(2, 8)])
    for seq in (3, 5, 5, 4):
        await world.store.checkpoint(lease, Checkpoint(seq=seq, segments=(SEGMENT,) * seq))

    assert [event.seq for event in await world.store.events(lease.task_id)] == [6, 7]
    assert [event.seq for event in await world.store.events(lease.task_id, after=6)] == [7]
    await world.lose(lease)
    assert (await world.claim()).checkpoint == Checkpoint(seq=5, segments=(SEGMENT,) * 5)


async def test_the_next_attempt_gets_the_checkpoint_and_the_last_seq(world, lease):
    kept = Checkpoint(seq=2, snapshot=SEGMENT, segments=(SEGMENT, SEGMENT))
    await world.store.append(lease, [world.event(2), world.event(3)])
    await world.store.checkpoint(lease, kept)
    await world.lose(lease)

    claim = await world.claim()

    assert claim.checkpoint == kept
    assert claim.last_seq == 4
    assert [event.type for event in await world.store.events(lease.task_id)] == ["noted", "lease_lost"]


async def test_a_checkpoint_of_events_that_were_never_appended_is_refused(world, lease):
    with pytest.raises(ValueError, match="the last event is 1"):
        await world.store.checkpoint(lease, Checkpoint(seq=2))


async def test_a_checkpoint_that_has_grown_too_long_is_refused(world, lease):
    with pytest.raises(ValueError, match="merge segments"):
        await world.store.checkpoint(lease, Checkpoint(seq=1, segments=(SEGMENT,) * 800))


async def test_the_journal_keeps_trials_in_order_and_one_of_a_repeated_write(world, lease):
    for entry in (trial(1), trial(2), trial(2), trial(3, exit_code=None, model_note="hm")):
        await world.store.record(lease, entry)

    assert await world.store.journal(lease.task_id) == [
        trial(1),
        trial(2),
        trial(3, exit_code=None, model_note="hm"),
    ]


async def test_the_journal_keeps_the_newest_trials(world, lease, monkeypatch):
    monkeypatch.setattr(leasing, "JOURNAL_ENTRIES", 2)
    for step in (1, 2, 3):
        await world.store.record(lease, trial(step))

    assert [entry.step for entry in await world.store.journal(lease.task_id)] == [2, 3]


async def test_the_journal_survives_a_lost_attempt(world, lease):
    await world.store.record(lease, trial(1))
    await world.lose(lease)

    assert await world.store.journal(lease.task_id) == [trial(1)]


async def test_a_lost_attempt_writes_nothing(world, lease):
    await world.lose(lease)

    with pytest.raises(LeaseLost):
        await world.store.append(lease, [world.event(3)])
    with pytest.raises(LeaseLost):
        await world.store.record(lease, trial(1))
    with pytest.raises(LeaseLost):
        await world.store.checkpoint(lease, Checkpoint(seq=1))
    assert [event.type for event in await world.store.events(lease.task_id)] == ["accepted", "lease_lost"]
    assert await world.store.journal(lease.task_id) == []
