"""A Django project with nothing in it but two workflows, for the benchmarks and their workers."""
