"""The room of deployments."""
