"""Brokers that come, go, lag and lose the ends of their logs, around the real controllers: one seeded history.

The controllers are the product's state machines over the image; the brokers are models that follow Kafka's replication
rules with what they have read of the metadata so far, which may be old. A log is a list of (leader epoch, number). The
promise under test: a replica that leads without an unclean election has every record that was ever acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from support.metadata import image_of, node_config

from controller import alter_partition, elections, heartbeats, reassignments, registrations
from controller.delta import apply_records
from controller.features import SUPPORTED_FEATURES, bootstrap_feature_records
from controller.heartbeats import BrokerHeartbeats
from controller.image import LEADER_RECOVERING, NO_LEADER, MetadataImage, PartitionImage
from controller.outcome import Outcome
from controller.topics import create_topics
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.schema import Message
from protocol.uuids import Uuid

SESSION_MS = 3000
CLUSTER_ID = "sim"
Log = list[tuple[int, int]]


class Leading:
    """What a leader knows of its partition in one leader epoch."""

    def __init__(self, partition: PartitionImage, log: Log) -> None:
        self.epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        self.isr = partition.isr
        self.start = len(log)
        self.high_watermark = 0
        self.fetched: dict[int, tuple[int, int]] = {}
        """Follower -> (its end offset, its broker epoch) at its last fetch."""


class Node:
    def __init__(self, node_id: int) -> None:
        self.id = node_id
        self.up = False
        self.stopping = False
        self.paused = False
        self.incarnation = Uuid(bytes(16))
        self.epoch = -1
        self.clean_epoch = -1
        self.view = MetadataImage()
        self.logs: dict[str, Log] = {}
        self.leading: dict[str, Leading] = {}
        self.ended: dict[str, int] = {}
        """Topic -> a leader epoch that the node knows to be over, though the metadata it has read does not say so."""

    @property
    def runs(self) -> bool:
        return self.up and not self.paused


class ClusterSim:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.config = node_config(Path("/nowhere"), min_insync_replicas=str(random.randrange(1, 3)))
        self.now_ms = 1_000_000
        self.records: list[Message] = bootstrap_feature_records()
        self.image = image_of(self.records)
        self.history = [self.image]
        self.heartbeats = BrokerHeartbeats(SESSION_MS)
        self.nodes = {node_id: Node(node_id) for node_id in range(1, random.randrange(4, 6))}
        self.acknowledged: dict[str, Log] = {}
        self.settled: dict[str, set[int]] = {}
        """Topic -> its replicas when no reassignment was under way."""
        self.counts: Counter[str] = Counter()
        self._number = 0
        for node in self.nodes.values():
            self._start(node)
            self._read(node)
            self._beat(node)
        for name in ("a", "b"):
            wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=3)
            self._append(
                create_topics(self.image, CreateTopicsRequest(topics=[wanted]), config=self.config, random=random)
            )
            self.acknowledged[name] = []
            self.settled[name] = self._replicas(name)

    # Running

    def step(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        actions: list[tuple[int, Callable[[], object]]] = [
            (8, self._pass_time),
            (30, lambda: self._beat(node)),
            (20, lambda: self._read(node)),
            (20, lambda: self._produce(node)),
            (40, lambda: self._fetch(node)),
            (16, lambda: self._grow_isr(node)),
            (4, lambda: self._shrink_isr(node)),
            (2, lambda: self._crash(node)),
            (1, lambda: self._want_stop(node)),
            (3, lambda: self._pause(node)),
            (6, lambda: self._resume(node)),
            (20, lambda: self._start(node)),
            (4, self._settle),
            (3, self._reassign),
            (1, self._elect_preferred),
            (1, self._fail_over),
        ]
        weights = [weight for weight, _ in actions]
        self.random.choices([action for _, action in actions], weights)[0]()
        self.check_image()

    def check_image(self) -> None:
        for topic in self.image.topics_by_name.values():
            partition = topic.partitions[0]
            assert set(partition.isr) <= set(partition.replicas), partition
            assert not set(partition.isr) & set(partition.elr), partition
            assert partition.leader == NO_LEADER or partition.leader in partition.isr, partition
            assert all(self.image.brokers[member].is_active for member in partition.isr), partition
            assert len(partition.directories) == len(partition.replicas), partition
            moving = {*partition.adding_replicas, *partition.removing_replicas}
            assert moving <= set(partition.replicas), partition
            assert not set(partition.adding_replicas) & set(partition.removing_replicas), partition
            if partition.leader == NO_LEADER:
                self.counts["steps without leader"] += 1

    def _append(self, made: Outcome[object]) -> None:
        """As the active controller does: decided, appended, visible to whoever reads on."""
        if not made.records:
            return
        before = self.image
        offset = before.offset + len(made.records)
        self.image, delta = apply_records(before, made.records, offset=offset, epoch=1)
        self.heartbeats.on_appended(self.image, delta)
        self.records += made.records
        self.history.append(self.image)
        for name in delta.changed_partitions:
            old, new = before.partition(name, 0), self.image.partition(name, 0)
            if old is not None and new is not None:
                self._on_change(name, old, new)

    def _on_change(self, name: str, old: PartitionImage, new: PartitionImage) -> None:
        assert new.leader_epoch >= old.leader_epoch and new.partition_epoch > old.partition_epoch, (old, new)
        if (old.adding_replicas or old.removing_replicas) and not (new.adding_replicas or new.removing_replicas):
            self.counts["reassignments over"] += 1
        if not (new.adding_replicas or new.removing_replicas):
            self.settled[name] = set(new.replicas)
        if new.leader == old.leader:
            return
        assert new.leader_epoch > old.leader_epoch, (old, new)
        self.counts["elections"] += new.leader != NO_LEADER
        is_incomplete = new.leader not in (NO_LEADER, *old.isr, *old.elr)
        if is_incomplete and new.leader_recovery_state == LEADER_RECOVERING:
            # Nobody complete was left, and the controller says so: what the new leader has is the truth from now on.
            self.counts["unclean elections"] += 1
            self.acknowledged[name] = list(self.nodes[new.leader].logs.get(name, []))

    def _settle(self) -> None:
        """A quiet moment: those who are up hear of everything and catch up, so the next fault finds much to lose."""
        for node in self.nodes.values():
            if node.runs and not node.stopping:
                self._beat(node)
                node.view = self.image
                self._read(node)
        for name in sorted(self.acknowledged) * 3:
            for node in self.nodes.values():
                self._fetch(node, name, partly=False)
        for node in self.nodes.values():
            self._grow_isr(node)
            self._produce(node)

    # Time and controllers

    def _pass_time(self) -> None:
        self.now_ms += self.random.randrange(1500)
        made = heartbeats.fence_expired(self.image, config=self.config, heartbeats=self.heartbeats, now_ms=self.now_ms)
        self.counts["fenced"] += len(made.response)
        self._append(made)
        for broker_id, epoch in made.response:
            self.heartbeats.end_session(broker_id, epoch)

    def _fail_over(self) -> None:
        self.counts["fail-overs"] += 1
        self.heartbeats = BrokerHeartbeats(SESSION_MS)
        self.heartbeats.activate(self.image, self.now_ms)

    def _elect_preferred(self) -> None:
        if self.random.random() < 0.5:
            self._append(elections.balance_leaders(self.image, config=self.config))
        else:
            request = ElectLeadersRequest(election_type=elections.PREFERRED, topic_partitions=None)
            self._append(elections.elect_leaders(self.image, request, config=self.config))

    def _reassign(self) -> None:
        registered = list(self.image.brokers)
        replicas = None
        if self.random.random() < 0.8:
            replicas = self.random.sample(registered, self.random.randrange(1, min(4, len(registered)) + 1))
        wanted = ReassignablePartition(partition_index=0, replicas=replicas)
        topic = ReassignableTopic(name=self.random.choice("ab"), partitions=[wanted])
        made = reassignments.alter_partition_reassignments(
            self.image, AlterPartitionReassignmentsRequest(topics=[topic]), config=self.config
        )
        self.counts["reassignments"] += bool(made.records)
        original = self.settled[topic.name]
        self._append(made)
        if replicas is None and made.records:
            self.counts["reassignments cancelled"] += 1
            assert self._replicas(topic.name) == original, (original, self.image.partition(topic.name, 0))

    def _replicas(self, name: str) -> set[int]:
        partition = self.image.partition(name, 0)
        assert partition is not None
        return set(partition.replicas)

    # Life of a broker

    def _start(self, node: Node) -> None:
        if node.up:
            return
        self._number += 1
        incarnation = Uuid(self._number.to_bytes(16, "big"))
        request = BrokerRegistrationRequest(
            broker_id=node.id,
            cluster_id=CLUSTER_ID,
            incarnation_id=incarnation,
            listeners=[Listener(name="PLAINTEXT", host="h", port=9, security_protocol=0)],
            features=[
                Feature(name=name, min_supported_version=r.min_version, max_supported_version=r.max_version)
                for name, r in SUPPORTED_FEATURES.items()
            ],
            log_dirs=[Uuid(bytes([100, node.id]) * 8)],
            previous_broker_epoch=node.clean_epoch,
        )
        try:
            made = registrations.register(
                self.image,
                request,
                config=self.config,
                cluster_id=CLUSTER_ID,
                kraft_version=1,
                heartbeats=self.heartbeats,
                now_ms=self.now_ms,
                next_offset=self.image.offset + 1,
            )
        except ApiError as error:
            assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            self.counts["refused registrations"] += 1
            if self.random.random() < 0.7:  # else the door cannot be reached: then the old session has to end first
                self._knock(node)
            return
        self._append(made)
        node.up, node.stopping, node.incarnation = True, False, incarnation
        node.epoch, node.clean_epoch = made.response.broker_epoch, -1
        node.view = self.image  # it serves nothing before it has read its own registration
        node.leading = {}
        self.counts["starts"] += 1

    def _knock(self, node: Node) -> None:
        """Nobody answers at the door of one that does not run. That says something if it was unfenced."""
        seen = self.heartbeats.contact(node.id)
        if seen is None or self.image.brokers[node.id].fenced:
            return
        made = heartbeats.fence_dead(self.image, node.id, seen, config=self.config, heartbeats=self.heartbeats)
        self._append(made)
        if made.response:
            self.heartbeats.end_session(node.id, seen[0])
            self.counts["found dead"] += 1

    def _beat(self, node: Node) -> None:
        if not node.runs:
            return
        self.heartbeats.on_contact(node.id, node.epoch, self.now_ms)
        request = BrokerHeartbeatRequest(
            broker_id=node.id,
            broker_epoch=node.epoch,
            current_metadata_offset=node.view.offset,
            want_shut_down=node.stopping,
        )
        made = heartbeats.broker_heartbeat(self.image, request, config=self.config, heartbeats=self.heartbeats)
        self._append(made)
        if made.response.should_shut_down:
            assert node.stopping
            self.heartbeats.end_session(node.id, node.epoch)
            node.up, node.clean_epoch = False, node.epoch
            self.counts["clean stops"] += 1

    def _pause(self, node: Node) -> None:
        if node.runs:
            node.paused = True
            self.counts["pauses"] += 1

    def _resume(self, node: Node) -> None:
        """It goes on with what it knew."""
        node.paused = False

    def _want_stop(self, node: Node) -> None:
        node.stopping = node.up

    def _crash(self, node: Node) -> None:
        """The process is gone, and with it the ends of its logs that had not reached the disk."""
        if node.up:
            node.up, node.paused, node.clean_epoch = False, False, -1
            for name, log in node.logs.items():
                node.logs[name] = log[: self.random.randrange(len(log) + 1)]
            self.counts["crashes"] += 1

    def _read(self, node: Node) -> None:
        """The broker reads on in the metadata log, not always to its end."""
        if not node.runs:
            return
        newer = [image for image in self.history[-12:] if image.offset > node.view.offset]
        if newer:
            node.view = self.random.choice(newer)
        for name in self.image.topics_by_name:
            partition = node.view.partition(name, 0)
            if partition is not None and node.id not in partition.replicas:
                node.logs.pop(name, None)  # it is no longer its business
            self._follow_leadership(node, name)

    def _follow_leadership(self, node: Node, name: str) -> None:
        partition = node.view.partition(name, 0)
        if partition is None or partition.leader != node.id or partition.leader_epoch <= node.ended.get(name, -1):
            node.leading.pop(name, None)
            return
        leading = node.leading.get(name)
        if leading is None or leading.epoch != partition.leader_epoch:
            log = node.logs.setdefault(name, [])
            if self._is_current(node, name, partition):
                acknowledged = self.acknowledged[name]
                assert log[: len(acknowledged)] == acknowledged, (
                    f"node {node.id} leads {name} in epoch {partition.leader_epoch} with {log}, "
                    f"but {acknowledged} was acknowledged"
                )
                self.counts["leaders checked"] += 1
            node.leading[name] = Leading(partition, log)
        elif partition.partition_epoch > leading.partition_epoch:
            leading.isr, leading.partition_epoch = partition.isr, partition.partition_epoch

    def _is_current(self, node: Node, name: str, partition: PartitionImage) -> bool:
        """Old news may say that a node leads what others lead by now; nobody follows it, so it acknowledges nothing."""
        now = self.image.partition(name, 0)
        return now is not None and now.leader == node.id and now.leader_epoch == partition.leader_epoch

    # Replication

    def _min_isr(self, node: Node, name: str) -> int:
        partition = node.view.partition(name, 0)
        assert partition is not None
        return min(self.config.min_insync_replicas, len(partition.replicas))

    def _produce(self, node: Node) -> None:
        if not node.runs or not node.leading:
            return
        name = self.random.choice(sorted(node.leading))
        leading = node.leading[name]
        if len(leading.isr) >= self._min_isr(node, name):
            self._number += 1
            node.logs[name].append((leading.epoch, self._number))
            self._advance(node, name)

    def _fetch(self, follower: Node, name: str | None = None, partly: bool = True) -> None:
        """From whom the follower takes for the leader, if that one takes itself for it in the same epoch."""
        name = name or self.random.choice("ab")
        partition = follower.view.partition(name, 0)
        if not follower.runs or partition is None or follower.id not in partition.replicas:
            return
        leader = self.nodes.get(partition.leader)
        if leader is None or leader is follower or not leader.runs:
            return
        leading = leader.leading.get(name)
        if leading is None or leading.epoch != partition.leader_epoch:
            return
        source, mine = leader.logs[name], follower.logs.setdefault(name, [])
        common = 0
        while common < min(len(source), len(mine)) and source[common] == mine[common]:
            common += 1
        # What it has by now is known to the leader; what it gets now, with the next fetch.
        del mine[common:]
        leading.fetched[follower.id] = (common, follower.epoch)
        mine += source[common : self.random.randrange(common, len(source) + 1) if partly else len(source)]
        self._advance(leader, name)

    def _advance(self, leader: Node, name: str) -> None:
        """The high watermark: on all of the ISR, and only while that is min.insync.replicas strong (KIP-966)."""
        leading, log = leader.leading[name], leader.logs[name]
        if len(leading.isr) < self._min_isr(leader, name):
            return
        ends = [leading.fetched.get(member, (0, 0))[0] for member in leading.isr if member != leader.id]
        reached = min([len(log), *ends])
        if reached > leading.high_watermark:
            leading.high_watermark = reached
            acknowledged, known = self.acknowledged[name], log[:reached]
            shorter = min(len(acknowledged), reached)
            assert acknowledged[:shorter] == known[:shorter], f"{name}: {acknowledged} was acknowledged, then {known}"
            if reached > len(acknowledged):
                self.counts["acknowledged"] += reached - len(acknowledged)
                self.acknowledged[name] = known

    def _grow_isr(self, node: Node) -> None:
        for name, leading in list(node.leading.items()):
            partition = node.view.partition(name, 0)
            if not node.runs or partition is None:
                continue
            for follower, (end, _) in leading.fetched.items():
                caught_up = end >= leading.high_watermark and end >= leading.start
                if caught_up and follower in partition.replicas and follower not in leading.isr:
                    self._alter(node, name, (*leading.isr, follower))
                    return

    def _shrink_isr(self, node: Node) -> None:
        for name, leading in list(node.leading.items()):
            others = [member for member in leading.isr if member != node.id]
            if node.runs and others:
                gone = self.random.choice(others)
                self._alter(node, name, tuple(member for member in leading.isr if member != gone))
                return

    def _alter(self, node: Node, name: str, isr: tuple[int, ...]) -> None:
        leading = node.leading[name]
        topic = self.image.topics_by_name[name]
        states = [
            BrokerState(
                broker_id=member,
                broker_epoch=node.epoch if member == node.id else leading.fetched.get(member, (0, -1))[1],
            )
            for member in isr
        ]
        part = PartitionData(
            partition_index=0,
            leader_epoch=leading.epoch,
            partition_epoch=leading.partition_epoch,
            new_isr_with_epochs=states,
        )
        request = AlterPartitionRequest(
            broker_id=node.id,
            broker_epoch=node.epoch,
            topics=[TopicData(topic_id=topic.topic_id, partitions=[part])],
        )
        made = alter_partition.alter_partition(self.image, request, config=self.config)
        answer = made.response.topics[0].partitions[0]
        self._append(made)
        if answer.error_code == ErrorCode.NONE:
            self.counts["ISR changes"] += 1
            leading.isr, leading.partition_epoch = tuple(answer.isr), answer.partition_epoch
            if answer.leader_epoch != leading.epoch:
                self._end(node, name)  # it learns of its new epoch from the metadata
            else:
                self._advance(node, name)
        else:
            self.counts["ISR changes refused"] += 1
            if answer.error_code == ErrorCode.NEW_LEADER_ELECTED:
                # The change was made and ended its leadership: with the ISR it knew it may acknowledge nothing more.
                self._end(node, name)

    def _end(self, node: Node, name: str) -> None:
        node.ended[name] = node.leading.pop(name).epoch
