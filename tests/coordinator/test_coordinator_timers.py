"""The deadlines of a shard."""

from __future__ import annotations

from broker.coordinator.effects import Effects
from broker.coordinator.group.timers import Action, Timers


def _noting(fired: list[str], name: str) -> Action:
    def action(now_ms: int) -> Effects:
        fired.append(f"{name}@{now_ms}")
        return Effects.reply(name, now_ms)

    return action


def test_deadlines_fire_in_the_order_of_their_times_then_of_their_scheduling() -> None:
    timers = Timers()
    fired: list[str] = []
    for name, deadline_ms in (("late", 30), ("first", 10), ("second", 10), ("future", 31)):
        timers.schedule(name, deadline_ms, _noting(fired, name))
    assert timers.next_deadline_ms == 10
    effects = timers.run_due(30)
    assert fired == ["first@30", "second@30", "late@30"]
    assert [reply.token for reply in effects.replies] == ["first", "second", "late"]
    assert timers.next_deadline_ms == 31


def test_a_key_has_one_deadline() -> None:
    timers = Timers()
    fired: list[str] = []
    timers.schedule("key", 10, _noting(fired, "old"))
    timers.schedule("key", 20, _noting(fired, "new"))
    assert len(timers) == 1
    timers.run_due(15)
    assert fired == []
    timers.run_due(20)
    assert fired == ["new@20"]
    assert timers.next_deadline_ms is None


def test_postponed_deadlines_keep_their_order() -> None:
    timers = Timers()
    fired: list[str] = []
    for name, deadline_ms in (("first", 10), ("second", 10), ("late", 20), ("gone", 5), ("moved", 1)):
        timers.schedule(name, deadline_ms, _noting(fired, name))
    timers.cancel("gone")
    timers.schedule("moved", 30, _noting(fired, "moved"))
    timers.postpone(100)
    assert timers.next_deadline_ms == 110
    timers.run_due(109)
    assert fired == []
    timers.run_due(130)
    assert fired == ["first@130", "second@130", "late@130", "moved@130"]


def test_a_cancelled_deadline_does_not_fire() -> None:
    timers = Timers()
    fired: list[str] = []
    timers.schedule("key", 10, _noting(fired, "x"))
    assert "key" in timers
    timers.cancel("key")
    timers.cancel("key")
    timers.run_due(100)
    assert fired == []
    assert "key" not in timers


def test_what_an_action_sets_for_now_fires_too() -> None:
    timers = Timers()
    fired: list[str] = []

    def action(now_ms: int) -> Effects:
        timers.schedule("next", now_ms, _noting(fired, "next"))
        return Effects()

    timers.schedule("first", 10, action)
    timers.run_due(10)
    assert fired == ["next@10"]


def test_replaced_deadlines_do_not_pile_up() -> None:
    timers = Timers()
    for beat in range(10_000):
        timers.schedule(beat % 3, 1_000_000 + beat, lambda now_ms: Effects())
    assert len(timers) == 3
    assert len(timers._heap) <= 2 * 3 + 64 + 1
