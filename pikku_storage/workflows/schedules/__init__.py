"""Schedules: workflows that start by the clock, each fire exactly once."""
