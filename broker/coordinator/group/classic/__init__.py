"""Groups of the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).

`group.py` is the state of one group and what its states allow; `rebalance.py` is how it moves on with time;
`join.py`, `membership.py` answer the requests and `manager.py` is the door to all of them. Members' deadlines are in
the shard's timers under keys that begin with ("classic", group_id).
"""
