"""Topics and their partitions: what exists, where it lives, and changing that through the controller."""
