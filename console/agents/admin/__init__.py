"""The admin classes of agents, one module for each page."""
