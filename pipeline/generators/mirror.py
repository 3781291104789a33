"""Sensor readings; the job itself takes records of any topic."""

from pipeline.generators.readings import events

__all__ = ["events"]
