"""How runs are carried out: attempts, passes and the relay (engine.md of the design)."""
