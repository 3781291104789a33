"""Clients of the replication simulation: an idempotent producer for each partition, and a reader.

The producer has up to five batches in flight, over a connection that keeps their order. When it does not learn what
became of one it repeats, unchanged, all that is undecided, one after the other, as the Java client does; the requests
on the connection that it gave up may still arrive. Its very first batch it sends alone: a partition that does not know
a producer takes any sequence from it.

The reader asks any replica (KIP-392), and the leader for the latest offset (KIP-207). Both learn of leaders from
whichever broker they ask, and never go back to an earlier leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from support.partitions import TOPIC
from support.replication_model import Broker
from support.replication_replica import Found, ReadPosition, Replica

from protocol.errors import ApiError, ErrorCode
from protocol.records import BatchHeader

if TYPE_CHECKING:
    from support.replication_sim import ReplicationSim

MAX_IN_FLIGHT = 5
REQUEST_TIMEOUT_MS = 300
RETRY_MS = 40


class Client:
    id = -1
    """No end of a link that is ever cut."""
    alive = True
    paused = False
    life = 0
    slow_ms = 0

    def __init__(self, sim: ReplicationSim, index: int) -> None:
        self.sim = sim
        self.index = index
        self.held: list[Any] = []
        self.leader = -1
        self.leader_epoch = -1
        self.replicas: tuple[int, ...] = ()

    def refresh(self) -> None:
        """Metadata of some broker that answers; what is older than what is known is passed over."""
        broker = self.sim.brokers[self.sim.rng.choice(self.sim.broker_ids)]
        if not broker.alive or broker.paused or broker.image is None:
            return
        partition = broker.image.topics_by_id[TOPIC].partitions[self.index]
        if partition.leader_epoch >= self.leader_epoch:
            self.leader, self.leader_epoch = partition.leader, partition.leader_epoch
            self.replicas = partition.replicas


class Connection:
    """Keeps the order of requests and of answers, until it breaks: then nothing more is sent on that side."""

    def __init__(self, client: Client, broker: Broker) -> None:
        self.client = client
        self.broker = broker
        self.is_broken = False
        """The client has noticed, and takes no answer any more."""
        self._life = broker.life
        self._is_cut = [False, False]
        self._last_ms = [0, 0]
        self._waiting: list[list[Callable[[], None]]] = []
        """For each request that the broker has, its answer once there is one."""

    def request(self, serve: Callable[[Callable[..., None]], None], answered: Callable[..., None]) -> None:
        def arrive() -> None:
            slot: list[Callable[[], None]] = []
            self._waiting.append(slot)

            def answer(*what: Any) -> None:
                slot.append(lambda: None if self.is_broken else answered(*what))
                while self._waiting and self._waiting[0]:
                    self._pass(1, None, self._waiting.pop(0)[0])

            serve(answer)

        if self.broker.alive and self.broker.life == self._life:
            self._pass(0, self.broker, arrive)

    def _pass(self, way: int, owner: Broker | None, deliver: Callable[[], None]) -> None:
        sim = self.client.sim
        if self._is_cut[way] or sim.rng.random() < sim.loss:
            self._is_cut[way] = True
            return
        at = max(self._last_ms[way], sim.now + sim.delay_ms() + self.broker.slow_ms)
        self._last_ms[way] = at
        sim.after(at - sim.now, owner, deliver)


class Producer(Client):
    def __init__(self, sim: ReplicationSim, index: int, producer_id: int) -> None:
        super().__init__(sim, index)
        self.producer_id = producer_id
        self.undecided: list[BatchHeader] = []
        """Sent, in order; what became of them is not known."""
        self.is_stopped = False
        self.acknowledged = 0
        self._next_sequence = 0
        self._connection: Connection | None = None
        self._repeated = 0
        """So many of the undecided have to be decided, one by one, before anything new is sent."""
        self._attempt = 0
        self._sent_ms = 0
        """When it last sent the first of the undecided, or heard of the one before."""
        sim.after(sim.rng.randint(1, 50), None, self._work)

    def _work(self) -> None:
        """Something new, now and then."""
        sim = self.sim
        if self.undecided and sim.now - self._sent_ms > REQUEST_TIMEOUT_MS:
            self._repeat(self._connection)
        limit = MAX_IN_FLIGHT if self.acknowledged else 1
        if not self.is_stopped and not self._repeated:
            for _ in range(sim.rng.choice((1, 1, 2, 5))):
                if len(self.undecided) < limit:
                    header = batch_header(self.producer_id, self._next_sequence)
                    self._next_sequence += 1
                    self.undecided.append(header)
                    self._send(header)
        sim.after(sim.rng.randint(10, 90), None, self._work)

    def _send(self, header: BatchHeader) -> None:
        sim = self.sim
        if len(self.undecided) == 1 or self._repeated:
            self._sent_ms = sim.now
        if self.leader < 0:
            self.refresh()
        if self.leader >= 0:
            if self._connection is None or self._connection.broker.id != self.leader:
                self._connection = Connection(self, sim.brokers[self.leader])
            connection, broker = self._connection, self._connection.broker

            def serve(answer: Callable[[ErrorCode, int], None]) -> None:
                replica = broker.replicas.get(self.index)
                if replica is None:
                    answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
                else:
                    replica.serve_produce(header, answer)

            connection.request(serve, lambda code, offset: self._on_answer(connection, header, code, offset))

    def _on_answer(self, connection: Connection, header: BatchHeader, code: ErrorCode, offset: int) -> None:
        if connection is not self._connection or not any(one is header for one in self.undecided):
            return
        if code is ErrorCode.NONE:
            self.sim.histories[self.index].on_acknowledged(header, offset)
            self.undecided = [one for one in self.undecided if one is not header]
            self.acknowledged += 1
            self._sent_ms = self.sim.now
            if self._repeated:
                self._repeated -= 1
                if self._repeated:
                    self._send(self.undecided[0])
            return
        self.sim.counts[f"produce answered: {code.name}"] += 1
        if self.sim.unclean and code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._begin_again()
        self._repeat(connection)

    def _begin_again(self) -> None:
        """What it had written is lost, so nothing it sends can follow on that: it goes on under another id."""
        self.producer_id += 1_000
        self.undecided = [batch_header(self.producer_id, at) for at in range(len(self.undecided))]
        self._next_sequence = len(self.undecided)

    def _repeat(self, connection: Connection | None) -> None:
        """Another connection, perhaps to another leader, and all over again from the first undecided on."""
        if connection is not None and connection is not self._connection:
            return
        if self._connection is not None:
            self._connection.is_broken = True
            self._connection = None
        self._attempt += 1
        attempt = self._attempt
        self._sent_ms = self.sim.now
        self._repeated = len(self.undecided)
        self.sim.counts["producers repeat"] += 1
        self.refresh()

        def again() -> None:
            if attempt == self._attempt and self.undecided:
                self.refresh()
                self._send(self.undecided[0])

        self.sim.after(RETRY_MS, None, again)


def batch_header(producer_id: int, sequence: int) -> BatchHeader:
    """Of a batch with one record."""
    return BatchHeader(0, 100, -1, 2, 0, 0, 0, 0, 0, producer_id, 0, sequence, 1)


class Reader(Client):
    def __init__(self, sim: ReplicationSim, index: int) -> None:
        super().__init__(sim, index)
        self.position = 0
        self.last_epoch = -1
        self.latest = 0
        sim.after(sim.rng.randint(1, 100), None, self._work)

    def _work(self) -> None:
        sim = self.sim
        if self.leader < 0 or sim.rng.random() < 0.2:
            self.refresh()
        if self.leader >= 0:
            if sim.rng.random() < 0.3:
                self._ask_latest(sim.brokers[self.leader])
            else:
                self._read(sim.brokers[sim.rng.choice((self.leader, *self.replicas))])
        sim.after(sim.rng.randint(20, 140), None, self._work)

    def _reaches(self, broker: Broker) -> bool:
        return broker.alive and not broker.paused and self.sim.rng.random() >= self.sim.loss

    def _read(self, broker: Broker) -> None:
        replica = broker.replicas.get(self.index)
        if replica is None or not self._reaches(broker):
            return
        asked = ReadPosition(self.position, self.last_epoch, self.leader_epoch)
        found = replica.serve_reader(asked)
        if found.error is not ErrorCode.NONE:
            self.refresh()
            if found.error is ErrorCode.OFFSET_OUT_OF_RANGE and replica.partition.leader == broker.id:
                start = replica.log.log_start_offset
                assert self.position < start or self.sim.unclean, (
                    f"the leader {broker.id} of partition {self.index} does not have {self.position}, which was shown"
                )
                self.position, self.last_epoch = start, -1
            return
        self._take(broker, replica, found)

    def _take(self, broker: Broker, replica: Replica, found: Found) -> None:
        if found.diverging is not None:
            assert self.sim.unclean, (
                f"broker {broker.id} tells a reader of partition {self.index} at {self.position} "
                f"that its records end at {found.diverging.end_offset}"
            )
            self.position, self.last_epoch = replica.log.log_start_offset, -1
            return
        history = self.sim.histories[self.index]
        if found.entries and broker.id != self.leader:
            self.sim.counts["read from followers"] += 1
        for epoch, header in found.entries:
            history.on_shown(broker.id, self.position, header)
            self.position += 1
            self.last_epoch = epoch

    def _ask_latest(self, broker: Broker) -> None:
        replica = broker.replicas.get(self.index)
        if replica is None or not self._reaches(broker):
            return
        try:
            latest = replica.latest(self.leader_epoch)
        except ApiError as error:
            self.sim.counts[f"latest refused: {error.code.name}"] += 1
            self.refresh()
            return
        assert self.sim.unclean or latest >= max(self.latest, self.position), (
            f"broker {broker.id} tells {latest} as the end of partition {self.index}, "
            f"but {self.latest} was told and {self.position} read before"
        )
        self.latest = latest
