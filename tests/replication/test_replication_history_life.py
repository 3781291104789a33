"""The checker of fault histories finds partitions that stand still, nodes that crash, and histories that leave things
out: histories with planted errors, and harmless ones beside them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.history_check import Checker
from support.planted_history import Event, Events, assert_found, good, of, plant_after, replicas

LONG_MS = 100_000
FULL_DISK: Event = {"op": "fault", "kind": "full disk", "nodes": [2], "may_end": True}
HEALED: Event = {"op": "healed", "hits": 3}


# Partitions that stand still


@pytest.mark.parametrize("fields", [{"nodes": [1, 2]}, {"nodes": [1], "unsettled": True}])
def test_pauses_that_were_intended_are_told_apart(fields: Event) -> None:
    """Acknowledgements at 0, 2, 10, 20 and 25 s, all of them in one partition; two nodes are broken from 11 to 19 s."""
    acks = acknowledged(0, 2, 10, 20, 25)
    fault = {"ms": 11, "op": "fault", "kind": "kill", **fields}
    verdict = Checker().check([*acks[:3], fault, {"ms": 19, "op": "healed"}, *acks[3:]])
    assert (verdict.longest_pause_ms, verdict.longest_total_pause_ms) == (8, 10)


@pytest.mark.parametrize(("acked_ms", "longest_ms"), [((9, 15), 9), ((2, 13), 11), ((2, 8, 13), 7), ((2, 8), 12)])
def test_the_beginning_and_the_end_are_pauses_too(acked_ms: tuple[int, ...], longest_ms: int) -> None:
    events = [{"ms": 0, "op": "begin"}, *acknowledged(*acked_ms), {"ms": 20, "op": "end"}]
    verdict = Checker().check(events)
    assert (verdict.longest_pause_ms, verdict.longest_total_pause_ms) == (longest_ms, longest_ms)


def acknowledged(*times_ms: int) -> Events:
    return [{"ms": ms, "op": "ack", "producer": "x", "partition": 0, "offset": 0, "values": []} for ms in times_ms]


def later(events: Events, op: str) -> None:
    """From this kind of event on, everything is much later."""
    begins = next(at for at, event in enumerate(events) if event["op"] == op)
    for event in events[begins:]:
        event["ms"] += LONG_MS


def stop_for_good(events: Events) -> None:
    later(events, "end")


def begin_late(events: Events) -> None:
    later(events, "send")


def stand_still_in_between(events: Events) -> None:
    later(events, "healed")


def never_go_on_after_the_last_fault(events: Events) -> None:
    events.remove(of(events, "ack")[-1])


def never_write_to_a_partition(events: Events) -> None:
    """It is on every node, and empty."""
    of(events, "cluster")[0]["topics"][0]["partitions"] = 2
    events += [{**replica, "partition": 1, "end": 0, "high_watermark": 0, "values": []} for replica in replicas(events)]


def acknowledge_nothing(events: Events) -> None:
    events[:] = [event for event in events if event["op"] != "ack"]


# Nodes that end


def crash(events: Events) -> None:
    plant_after(events, "healed", ended(-11))


def give_up_without_a_reason(events: Events) -> None:
    plant_after(events, "healed", ended(1))


def end_for_no_reason_at_all(events: Events) -> None:
    plant_after(events, "healed", ended(0))


def crash_on_a_full_disk(events: Events) -> None:
    plant_after(events, "healed", FULL_DISK, ended(-7), HEALED)


def give_up_on_a_disk_that_did_not_matter(events: Events) -> None:
    plant_after(events, "healed", FULL_DISK | {"may_end": False}, ended(1), HEALED)


def give_up_on_the_disk_of_another(events: Events) -> None:
    plant_after(events, "healed", FULL_DISK | {"nodes": [1]}, ended(1), HEALED)


def give_up_twice(events: Events) -> None:
    plant_after(events, "healed", FULL_DISK, ended(1), HEALED, ended(1))


def give_up_long_afterwards(events: Events) -> None:
    """The cluster was whole again before the next fault struck, and that one broke another node."""
    harmless = {"op": "fault", "kind": "kill", "nodes": [1], "unsettled": False}
    plant_after(events, "healed", FULL_DISK, HEALED, harmless, ended(1))


def stop_with_an_error(events: Events) -> None:
    of(events, "ended", node=3)[0]["code"] = 1


def die_of_sigterm(events: Events) -> None:
    of(events, "ended", node=3)[0]["code"] = -15


def not_stop(events: Events) -> None:
    of(events, "ended", node=3)[0].update(code=-9, cause="SIGKILL after SIGTERM")


def end_somehow(events: Events) -> None:
    of(events, "ended", node=3)[0]["cause"] = "?"


def ended(code: int, cause: str = "by itself") -> Event:
    return {"op": "ended", "node": 2, "code": code, "cause": cause}


# Histories that leave things out


def know_no_cluster(events: Events) -> None:
    events.remove(of(events, "cluster")[0])


def tell_of_the_cluster_later(events: Events) -> None:
    events.insert(2, events.pop(0))


def never_begin(events: Events) -> None:
    events.remove(of(events, "begin")[0])


def never_end(events: Events) -> None:
    events.remove(of(events, "end")[0])


def be_cut_off(events: Events) -> None:
    del events[events.index(of(events, "end")[0]) :]


def fail(events: Events) -> None:
    events.append({"ms": 9, "op": "failed", "text": "Traceback ..."})


def forget_a_node(events: Events) -> None:
    """It is nowhere, not even among the groups' offsets."""
    events[:] = [event for event in events if event.get("node") != 3]


def have_one_replica(events: Events) -> None:
    events[:] = [event for event in events if event.get("node") not in (2, 3)]


def forget_the_offsets_topic(events: Events) -> None:
    events[:] = [event for event in events if event.get("topic") != "o"]


def declare_no_offsets_topic(events: Events) -> None:
    forget_the_offsets_topic(events)
    of(events, "cluster")[0]["topics"].pop()


def store_nowhere(events: Events) -> None:
    events[:] = [event for event in events if event["op"] != "stored"]


def store_on_two_nodes(events: Events) -> None:
    events.remove(of(events, "stored", node=3, group="m")[0])


def rename_acknowledgements(events: Events) -> None:
    for event in of(events, "ack"):
        event["op"] = "acked"


def commit_no_record(events: Events) -> None:
    for replica in replicas(events):
        replica["high_watermark"] = 0


def commit_no_record_and_show_none(events: Events) -> None:
    for replica in replicas(events):
        replica.update(high_watermark=0, values=[])


def commit_no_offsets(events: Events) -> None:
    for replica in of(events, "replica", topic="o"):
        replica["high_watermark"] = 0


def commit_what_is_not_there(events: Events) -> None:
    for replica in replicas(events):
        replica["end"] = 4


def show_no_records(events: Events) -> None:
    for replica in replicas(events):
        replica["values"] = None


def tell_twice(events: Events) -> None:
    events.append(replicas(events)[1])


def tell_of_another_topic(events: Events) -> None:
    events.append(replicas(events)[1] | {"topic": "u"})


def not_be_read(events: Events) -> None:
    events[:] = [event for event in events if event["op"] != "read"]


def hold_a_group_that_does_nothing(events: Events) -> None:
    of(events, "cluster")[0]["groups"].append({"name": "idle", "has_members": False})


def hold_a_group_without_members(events: Events) -> None:
    of(events, "cluster")[0]["groups"][0]["has_members"] = True


def leave_a_node_running(events: Events) -> None:
    events.remove(of(events, "ended", node=2)[0])


PLANTED: list[tuple[Callable[[Events], None], str]] = [
    (stop_for_good, "stalled"),
    (begin_late, "stalled"),
    (stand_still_in_between, "stalled"),
    (never_go_on_after_the_last_fault, "stalled"),
    (never_write_to_a_partition, "stalled"),
    (acknowledge_nothing, "stalled"),
    (crash, "ended by itself"),
    (give_up_without_a_reason, "ended by itself"),
    (end_for_no_reason_at_all, "ended by itself"),
    (crash_on_a_full_disk, "ended by itself"),
    (give_up_on_a_disk_that_did_not_matter, "ended by itself"),
    (give_up_on_the_disk_of_another, "ended by itself"),
    (give_up_twice, "ended by itself"),
    (give_up_long_afterwards, "ended by itself"),
    (stop_with_an_error, "did not stop"),
    (die_of_sigterm, "did not stop"),
    (not_stop, "did not stop"),
    (end_somehow, "ended by itself"),
    (know_no_cluster, "incomplete"),
    (tell_of_the_cluster_later, "incomplete"),
    (never_begin, "incomplete"),
    (never_end, "incomplete"),
    (be_cut_off, "incomplete"),
    (fail, "the run failed"),
    (forget_a_node, "incomplete"),
    (forget_a_node, "commits lost"),
    (have_one_replica, "incomplete"),
    (forget_the_offsets_topic, "incomplete"),
    (declare_no_offsets_topic, "incomplete"),
    (store_nowhere, "commits lost"),
    (store_on_two_nodes, "commits lost"),
    (rename_acknowledgements, "unknown events"),
    (rename_acknowledgements, "stalled"),
    (commit_no_record, "lost"),
    (commit_no_record, "incomplete"),
    (commit_no_record_and_show_none, "lost"),
    (commit_no_offsets, "incomplete"),
    (commit_what_is_not_there, "incomplete"),
    (show_no_records, "incomplete"),
    (tell_twice, "incomplete"),
    (tell_of_another_topic, "incomplete"),
    (not_be_read, "incomplete"),
    (hold_a_group_that_does_nothing, "incomplete"),
    (hold_a_group_without_members, "incomplete"),
    (leave_a_node_running, "incomplete"),
]


@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=lambda value: getattr(value, "__name__", value))
def test_planted_errors_are_found(plant: Callable[[Events], None], kind: str) -> None:
    assert_found(plant, kind)


def test_a_history_that_is_cut_off_is_not_said_to_have_lost_everything() -> None:
    events = good()
    be_cut_off(events)
    verdict = Checker().check(events)
    assert {kind for kind, _ in verdict.problems} == {"incomplete"}, verdict.report()
    assert verdict.counts["acknowledged"] == 4


def give_up_with_a_reason(events: Events) -> None:
    plant_after(events, "healed", FULL_DISK, ended(1), HEALED)


def give_up_after_the_disk_was_mended(events: Events) -> None:
    """What it began to do before; and others may have been broken before everything was whole."""
    next_one = {"op": "fault", "kind": "kill", "nodes": [1], "unsettled": True}
    plant_after(events, "healed", FULL_DISK, HEALED, next_one, ended(1), {"op": "healed"})


def stop_without_its_metadata(events: Events) -> None:
    plant_after(events, "healed", FULL_DISK, HEALED, ended(1, "SIGTERM"))


def be_a_jvm(events: Events) -> None:
    of(events, "ended", node=3)[0].update(code=143, usual=143)


@pytest.mark.parametrize(
    "change",
    [give_up_with_a_reason, give_up_after_the_disk_was_mended, stop_without_its_metadata, be_a_jvm],
    ids=lambda change: change.__name__,
)
def test_nodes_that_end_as_they_should_are_no_problem(change: Callable[[Events], None]) -> None:
    events = good()
    change(events)
    assert Checker().check(events).problems == []
