"""Consumer groups: membership in both protocols, offsets, and their administration.

The handlers check what the group's shard cannot know (an empty group id, topics that do not exist), hand the request
to the shard through `broker.groups`, and put an error into the place where the API's response has one for it.
"""
