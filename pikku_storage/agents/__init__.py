"""Threads, messages, runs, approvals and memory of AI agents."""
