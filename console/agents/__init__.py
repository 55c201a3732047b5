"""The console's pages for agents: threads, their runs, and what waits for somebody's approval."""
