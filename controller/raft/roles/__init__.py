"""One class for each role a node can have in an epoch: its timers, what it knows, whether it may grant a vote.

Roles do not change themselves: ``quorum.py`` swaps them.
"""
