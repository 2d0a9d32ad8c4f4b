"""Whatever happens in whatever order: the levels agree, and no ceiling is passed by more than one call."""

import hypothesis
import pytest
from hypothesis import strategies as st

from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.question import Answer, Question
from zubble_queue.contracts.record import BatchInfo, Refused, Reserved

CEILINGS = {"b1": 1_000, "b2": 1_500}
TENANT_CEILING = 2_000
LARGEST_CALL = 400

reserving = st.tuples(
    st.just("reserve"), st.integers(0, 5), st.integers(1, LARGEST_CALL), st.integers(1, LARGEST_CALL)
)
settling = st.tuples(st.just("settle"), st.integers(0, 5), st.integers(0, LARGEST_CALL), st.just(0))
ending = st.tuples(
    st.sampled_from(["crash", "release", "postpone", "park", "seal"]),
    st.integers(0, 5),
    st.just(0),
    st.just(0),
)
histories = st.lists(st.one_of(reserving, reserving, settling, settling, ending), max_size=40)


class Racing:
    """Six tasks of two batches of one tenant, driven by a history."""

    def __init__(self, world, tag):
        self.world, self.tag = world, tag
        self.leases = {}
        self.calls = 0
        self.open = {}
        self.reserved = {}

    async def begin(self):
        store = self.world.store
        for name, ceiling in CEILINGS.items():
            info = BatchInfo(name=self.batch(name), tenant=self.tag, max_spend_usd=ceiling / 1_000_000)
            await store.create_batch(info)
            await self.world.submit("x", "y", "z", batch=self.batch(name))
        await store.set_ceiling("tenant", self.tag, TENANT_CEILING)
        await self.claim_all()

    def batch(self, name):
        return f"{self.tag}-{name}"

    async def claim_all(self):
        for header in await self.world.store.announce(100):
            claim = await self.world.store.claim(header, worker_id="w")
            if not isinstance(claim, Refused):
                self.leases[header.task_id] = claim.lease

    async def do(self, kind, number, amount, least):
        ids = sorted(self.leases)
        if not ids:
            return
        id_ = ids[number % len(ids)]
        await getattr(self, kind)(id_, amount, least)
        await self.claim_all()

    async def reserve(self, id_, amount, least):
        if id_ in self.open:
            return
        self.calls += 1
        call = f"c{self.calls}"
        answer = await self.world.store.reserve(
            self.leases[id_], call, tokens=1, micro_usd=amount, least_micro_usd=min(least, amount)
        )
        if isinstance(answer, Reserved):
            assert min(least, amount) <= answer.micro_usd <= amount
            self.open[id_] = (call, answer.micro_usd)

    async def settle(self, id_, amount, _least):
        if id_ in self.open:
            call, reserved = self.open.pop(id_)
            spent = min(amount, reserved)
            await self.world.store.settle(self.leases[id_], call, Usage(calls=1, spend_micro_usd=spent))

    async def crash(self, id_, *_):
        await self.world.lose(self.leases.pop(id_))
        self.open.pop(id_, None)

    async def release(self, id_, *_):
        await self.world.store.release(self.leases.pop(id_), cause="handover")
        self.open.pop(id_, None)

    async def park(self, id_, *_):
        lease, nobody = self.leases.pop(id_), Answer(text="decide", by="deadline")
        question = Question(
            question_id=lease.token, kind="question", cause="agent", text="?", unanswered=nobody
        )
        await self.world.store.ask(lease, question, 60.0)
        await self.world.store.release(lease, cause="awaiting_human")
        await self.world.store.answer(id_, Answer(text="go"))
        self.open.pop(id_, None)

    async def postpone(self, id_, *_):
        await self.world.store.postpone(self.leases.pop(id_), cause="no endpoint")
        self.open.pop(id_, None)

    async def seal(self, id_, *_):
        await self.world.store.seal(self.leases.pop(id_), self.world.passed)
        self.open.pop(id_, None)

    async def check(self):
        store = self.world.store
        tenant = await store.budget("tenant", self.tag) if self.calls else None
        batches = {name: await store.budget("batch", self.batch(name)) for name in CEILINGS}
        for name, budget in batches.items():
            spent = [task.usage.spend_micro_usd async for task in store.tasks(self.batch(name))]
            assert budget.settled_micro_usd == sum(spent)
            assert budget.settled_micro_usd + budget.reserved_micro_usd <= CEILINGS[name]
            assert sum(budget.by_model.values()) == budget.settled_micro_usd
            assert sum(budget.by_outcome.values()) <= budget.settled_micro_usd
        assert sum(budget.reserved_micro_usd for budget in batches.values()) == sum(
            amount for _, amount in self.open.values()
        )
        if tenant:
            for field in ("settled_micro_usd", "reserved_micro_usd"):
                assert getattr(tenant, field) == sum(getattr(budget, field) for budget in batches.values())
            assert tenant.settled_micro_usd + tenant.reserved_micro_usd <= TENANT_CEILING


@pytest.fixture
def number():
    return iter(range(1_000_000))


@hypothesis.settings(
    max_examples=40,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow],
)
@hypothesis.given(history=histories)
async def test_the_levels_agree_and_no_ceiling_is_passed(world, number, history):
    racing = Racing(world, f"t{next(number)}")
    await racing.begin()
    for act in history:
        await racing.do(*act)
        await racing.check()


async def test_what_a_call_costs_beyond_its_reservation_is_all_that_can_pass_a_ceiling(world):
    racing = Racing(world, "t")
    await racing.begin()
    lease = next(lease for lease in racing.leases.values() if lease.batch == racing.batch("b1"))
    await world.store.reserve(lease, "c", tokens=1, micro_usd=900)
    await world.store.settle(lease, "c", Usage(calls=1, spend_micro_usd=1_300))
    answer = await world.store.reserve(lease, "d", tokens=1, micro_usd=1)

    assert answer.limit == "batch_spend"
    assert (await world.store.budget("batch", racing.batch("b1"))).settled_micro_usd == 1_300
