import pytest

from zubble_queue.artifacts import ArtifactStore, reference
from zubble_queue.contracts.envelope import BlobRef, FileEntry, VerifySpec
from zubble_queue.contracts.record import BatchInfo
from zubble_queue.contracts.submission import Parcel, Submission
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.contracts.tuning import Tuning
from zubble_queue.dispatcher import Dispatcher
from zubble_queue.errors import BadInput, CannotStart, InfraError, UnknownName


@pytest.fixture
def artifacts(tmp_path):
    return ArtifactStore(str(tmp_path / "artifacts"))


@pytest.fixture
def dispatcher(world, artifacts):
    return Dispatcher(world.store, artifacts)


def submission(*parcels, name="b"):
    return Submission(batch=BatchInfo(name=name, source="tasks.jsonl"), parcels=parcels)


@pytest.fixture
def parcel(world):
    def make(source_id, check=b"assert True", batch="b", **fields):
        blob = BlobRef(ref=reference(check), size=len(check))
        verify = VerifySpec(files=(FileEntry(path="check.py", blob=blob),))
        return Parcel(world.envelope(batch, source_id, verify=verify, **fields), {blob.ref: check})

    return make


async def nothing_was_written(world, artifacts):
    with pytest.raises(UnknownName):
        await world.store.batch("b")
    return not artifacts.has(reference(b"assert True"))


async def test_a_submission_becomes_an_open_batch_with_its_content_kept(world, dispatcher, artifacts, parcel):
    report = await dispatcher.submit(
        submission(parcel("a"), parcel("b", budget=LoopBudget(max_spend_usd=2.5)))
    )

    assert (report.total, report.created, report.existing) == (2, 2, 0)
    assert report.budget_usd == 7.5
    batch = await world.store.batch("b")
    assert (batch.state, batch.total, batch.info.source) == ("open", 2, "tasks.jsonl")
    assert artifacts.get(reference(b"assert True")) == b"assert True"


async def test_submitting_the_same_again_creates_nothing(world, dispatcher, parcel):
    await dispatcher.submit(submission(parcel("a"), parcel("b")))

    report = await dispatcher.submit(submission(parcel("b"), parcel("a")))

    assert (report.created, report.existing, report.budget_usd) == (0, 2, 0)


async def test_settings_that_are_given_again_count_from_now_on_and_the_others_stay(world, dispatcher, parcel):
    info = BatchInfo(name="b", tuning=Tuning(weight=2, max_retries=1), max_spend_usd=5)
    await dispatcher.submit(Submission(info, [parcel("a")], {"weight": 2, "max_retries": 1}))

    again = BatchInfo(name="b", tuning=Tuning(max_retries=3), max_spend_usd=9)
    report = await dispatcher.submit(Submission(again, [parcel("a")], {"max_retries": 3}))

    assert (report.created, report.existing) == (0, 1)
    assert (await world.store.batch("b")).tuning == Tuning(weight=2, max_retries=3)
    assert (await world.store.budget("batch", "b")).ceiling_micro_usd == 9_000_000
    assert (await world.claim()).retries_left == 3


async def test_lines_added_to_the_file_create_only_the_new_tasks(world, dispatcher, parcel):
    await dispatcher.submit(submission(parcel("a")))

    report = await dispatcher.submit(submission(parcel("new"), parcel("a")))

    assert (report.total, report.created, report.existing) == (2, 1, 1)
    assert (await world.store.batch("b")).total == 2


async def test_a_dry_run_counts_and_writes_nothing(world, dispatcher, artifacts, parcel):
    report = await dispatcher.submit(submission(parcel("a"), parcel("b")), dry_run=True)

    assert (report.created, report.existing, report.budget_usd, report.dry_run) == (2, 0, 10.0, True)
    assert await nothing_was_written(world, artifacts)


async def test_changed_tasks_are_named_and_nothing_is_created(world, dispatcher, parcel):
    await dispatcher.submit(submission(parcel("a"), parcel("b")))
    changed = submission(parcel("a", check=b"assert False"), parcel("b", level="medium"), parcel("new"))

    with pytest.raises(BadInput) as refused:
        await dispatcher.submit(changed)

    assert [problem.split(" is in batch")[0] for problem in refused.value.problems] == ["'a'", "'b'"]
    assert (await world.store.batch("b")).total == 2


async def test_all_problems_are_told_at_once_before_anything_is_written(world, dispatcher, artifacts, parcel):
    twice = parcel("twice", repeat=2)
    elsewhere = parcel("elsewhere", batch="other")
    forged = Parcel(parcel("forged").envelope, {reference(b"x"): b"y"})

    with pytest.raises(BadInput) as refused:
        await dispatcher.submit(submission(parcel("good"), twice, twice, elsewhere, forged))

    assert refused.value.problems == (
        "'twice' (repeat 2) is there 2 times; ids must differ.",
        "'elsewhere' belongs to batch 'other', not 'b'.",
        f"'forged': the content given for {reference(b'x')} has another digest.",
    )
    assert await nothing_was_written(world, artifacts)


async def test_of_very_many_problems_the_first_are_shown_with_their_number(dispatcher, parcel):
    parcels = [parcel(f"t{number}") for number in range(50) for _ in range(2)]

    with pytest.raises(BadInput) as refused:
        await dispatcher.submit(submission(*parcels))

    assert len(refused.value.problems) == 21
    assert refused.value.problems[-1] == "… and 30 more of 50 problems."


async def test_a_submission_without_tasks_is_refused(world, dispatcher, artifacts):
    with pytest.raises(BadInput, match="Batch 'b' has no tasks"):
        await dispatcher.submit(submission())
    assert await nothing_was_written(world, artifacts)


async def test_content_must_come_along_or_be_there_already(world, dispatcher, artifacts, parcel):
    bare = Parcel(parcel("a").envelope, {})
    with pytest.raises(BadInput, match=f"'a': the content of {reference(b'assert True')} is missing"):
        await dispatcher.submit(submission(bare))
    assert await nothing_was_written(world, artifacts)

    artifacts.put(b"assert True")
    assert (await dispatcher.submit(submission(bare))).created == 1


async def test_progress_goes_up_to_the_number_of_steps(dispatcher, parcel):
    seen = []
    parcels = [parcel(f"t{number}", check=b"%d" % number) for number in range(600)]

    await dispatcher.submit(submission(*parcels), progress=lambda done, total: seen.append((done, total)))

    assert seen == sorted(seen)
    assert seen[-1] == (1_200, 1_200)
    assert len(seen) == len(set(seen)) > 4


async def test_an_interrupted_submission_is_completed_by_submitting_again(world, dispatcher, parcel):
    parcels = [parcel(f"t{number}") for number in range(700)]

    def pull_the_plug(done, total):
        if done > 500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await dispatcher.submit(submission(*parcels), progress=pull_the_plug)
    assert (await world.store.batch("b")).state == "loading"

    report = await dispatcher.submit(submission(*parcels))

    assert (report.created, report.existing) == (200, 500)
    assert (await world.store.batch("b")).state == "open"


async def test_new_tasks_for_a_cancelled_batch_are_refused_and_old_ones_are_not(world, dispatcher, parcel):
    await dispatcher.submit(submission(parcel("a")))
    await world.store.cancel_batch("b")

    assert (await dispatcher.submit(submission(parcel("a")))).existing == 1
    with pytest.raises(BadInput, match="'b' is cancelled; submit new tasks under another name"):
        await dispatcher.submit(submission(parcel("a"), parcel("late")))


async def test_no_space_for_the_content_is_one_sentence_and_no_batch(world, dispatcher, artifacts, parcel):
    class Full(ArtifactStore):
        def put_all(self, blobs):
            raise InfraError("No space left for artifacts in /full.")

    with pytest.raises(CannotStart, match=r"^No space left for artifacts in /full\.$"):
        await Dispatcher(world.store, Full(artifacts.url)).submit(submission(parcel("a")))
    with pytest.raises(UnknownName):
        await world.store.batch("b")
