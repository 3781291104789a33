"""Groups of the consumer protocol (KIP-848): the coordinator assigns, members reconcile by heartbeats.

`manager.py` is the door. `group.py` and `member.py` are the state, changed only by replaying records (`replay.py`), so
that a rebuilt coordinator cannot differ from a running one. `heartbeat.py` serves members of this protocol,
`classic_members.py` those that still speak the classic one, `migration.py` turns groups of one kind into the other.
`target.py` and `assignors/` say who should own what, `reconcile.py` how a member gets there. `regex.py` and
`metadata_hash.py` are leaves. Deadlines are in the shard's timers under keys that begin with ("consumer", group_id).
"""
