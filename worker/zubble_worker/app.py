"""All that knows Celery: the app, the publisher, and the consuming thread.

Celery only carries hints (design: section 3.3): a message says "this attempt may be claimed"; the record in
Redis is the truth. So messages are acknowledged before the body starts, hold no text and no secret, are
never retried by Celery, and no result is kept: Flower learns the ending from the task's events.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from celery import Celery
from celery.bootsteps import StartStopStep
from celery.exceptions import Ignore
from celery.worker import WorkController
from celery.worker import state as celery_state
from celery.worker.consumer import Tasks
from kombu.entity import Exchange, Queue

from zubble_queue.contracts.envelope import Header
from zubble_queue.settings import Settings
from zubble_worker.broker import broker_settings

TASK_NAME: Final = "zubble.attempt"
_VISIBILITY_SECONDS: Final = 7_200
"""Twice the longest wall clock; without late acks it only bounds what a crash in the pop leaves behind."""


def make_app(settings: Settings, needs: Iterable[str] = ()) -> Celery:
    """The Celery app for an installation, set to what Celery is here for.

    Args:
        settings: Of the installation.
        needs: Keys of the needs whose queues it consumes.
    """
    assert settings.redis_url is not None
    broker = broker_settings(settings.redis_url.get_secret_value())
    transport_options = broker.pop("broker_transport_options")
    app = Celery("zubble", set_as_current=False)
    app.conf.update(
        **broker,
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        result_backend=None,
        task_ignore_result=True,
        task_queues=[queue_of(settings.namespace, need) for need in needs],
        task_create_missing_queues=False,
        task_acks_late=False,
        task_send_sent_event=True,
        task_track_started=True,
        worker_send_task_events=True,
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_detect_quorum_queues=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "global_keyprefix": f"{settings.namespace}:celery:",
            "visibility_timeout": _VISIBILITY_SECONDS,
            "unacked_restore_interval": 10,
            "unacked_restore_throttle": 1,
            **transport_options,
        },
        event_queue_expires=60.0,
        event_queue_ttl=30.0,
        control_queue_expires=60.0,
        control_queue_ttl=60.0,
    )
    return app


def queue_name(namespace: str, need: str) -> str:
    """The Celery queue of a need: fairness happens before it, in the feeder."""
    return f"{namespace}-attempts/{need}"


def queue_of(namespace: str, need: str) -> Queue:
    """Without acknowledgements: Kombu would write what it delivers into Redis, and end when that is full."""
    name = queue_name(namespace, need)
    return Queue(name, Exchange(name), routing_key=name, no_ack=True)  # type: ignore[no-untyped-call]


class NoAcknowledgements(StartStopStep):  # type: ignore[misc]
    """Celery acknowledges what was taken without that, too, and Kombu would keep the tag of each for ever."""

    requires = (Tasks,)

    def start(self, parent: Any) -> None:
        """After each connection, whose channel is a new one."""
        parent.task_consumer.channel.qos.ack = _nothing


def _nothing(*_tag: Any, **_options: Any) -> None:
    """There is nothing to acknowledge."""


class Dropped(Exception):
    """The message announced nothing that is ours to finish: a double, a handover, a cancelled task."""


class Doubled(Dropped):
    """It came twice, and whoever took the first one is at work: what Flower shows is that one's to say."""


class CeleryPublisher:
    """Announces attempts: the feeder's way to Celery."""

    def __init__(self, settings: Settings) -> None:
        self._app = make_app(settings)
        self._namespace = settings.namespace

    async def publish(self, headers: Sequence[Header]) -> None:
        """Send one message per header. Raises kombu's OperationalError when Redis does not answer."""
        await asyncio.to_thread(self._publish, headers)

    def _publish(self, headers: Sequence[Header]) -> None:
        with self._app.producer_or_acquire() as producer:
            for header in headers:
                self._app.send_task(
                    TASK_NAME,
                    kwargs={"header": header.model_dump(mode="json")},
                    task_id=header.message_id,
                    queue=queue_of(self._namespace, header.need.key),
                    producer=producer,
                    retry=False,
                    ignore_result=True,
                )

    async def depth(self, need: str) -> int:
        """Messages of a need's key that nobody has taken yet."""
        return await asyncio.to_thread(self._depth, queue_name(self._namespace, need))

    def _depth(self, queue: str) -> int:
        with self._app.connection_or_acquire() as connection:
            return int(connection.default_channel._size(queue))  # noqa: SLF001 - Kombu's only way to ask

    async def aclose(self) -> None:
        await asyncio.to_thread(self._app.close)


class Consumer:
    """Celery's consumer in a thread of its own, without its signal handlers.

    Args:
        settings: Of the worker.
        name: As Flower shows it.
        needs: Keys of the needs it serves; it consumes their queues and no others.
        body: Called in a pool thread with the header; returns the short result that Flower shows as success,
            or raises Dropped, or a failure whose text may be shown.
        on_end: Called in the consumer's thread when it has ended, for whatever reason.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        name: str,
        needs: Iterable[str],
        body: Callable[[Header], str],
        on_end: Callable[[], object],
    ) -> None:
        self._app = make_app(settings, needs)
        self._app.steps["consumer"].add(NoAcknowledgements)
        self._name, self._slots, self._on_end = name, settings.worker.slots, on_end
        self._thread = threading.Thread(target=self._consume, name="celery-consumer", daemon=True)

        @self._app.task(name=TASK_NAME, bind=True, max_retries=0)  # type: ignore[untyped-decorator]
        def attempt(task: Any, header: dict[str, Any]) -> str:
            try:
                return body(Header.model_validate(header))
            except Doubled as doubled:
                raise Ignore(str(doubled)) from None
            except Dropped as dropped:
                self._show_revoked(task.request.id)
                raise Ignore(str(dropped)) from None

    def _show_revoked(self, message_id: str) -> None:
        """Neither success nor failure: without this event Flower would say STARTED for ever."""
        with self._app.events.default_dispatcher(hostname=self._name) as events:
            events.send("task-revoked", uuid=message_id, terminated=False, signum=None, expired=False)

    def start(self) -> None:
        celery_state.should_stop = None
        self._thread.start()

    def stop(self) -> None:
        """Take no more messages; the thread ends when the running bodies have."""
        celery_state.should_stop = 0

    def join(self, timeout_seconds: float) -> bool:
        """Whether it has ended."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _consume(self) -> None:
        try:
            WorkController(
                app=self._app,
                hostname=self._name,
                pool_cls="threads",
                concurrency=self._slots,
                without_gossip=True,
                without_mingle=True,
                without_heartbeat=False,
                loglevel="WARNING",
            ).start()
        finally:
            self._on_end()
