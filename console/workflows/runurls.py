"""The addresses of one run's page and of what belongs to it."""

from __future__ import annotations

from django.contrib.admin.utils import quote
from django.urls import reverse


class RunUrls:
    """The addresses of one run's page and of what belongs to it."""

    def __init__(self, run_id: str, site: str = "admin") -> None:
        self._run_id = run_id
        self._site = site

    def _reverse(self, view: str, *args: str) -> str:
        name = f"admin:pikku_workflows_workflowrun_{view}"
        return reverse(name, args=[quote(self._run_id), *map(quote, args)], current_app=self._site)

    @property
    def page(self) -> str:
        """The page itself."""
        return self._reverse("change")

    @property
    def live(self) -> str:
        """What changes on the page, as HTML."""
        return self._reverse("live")

    @property
    def events(self) -> str:
        """The events in the form the slider uses."""
        return self._reverse("events")

    @property
    def raw_events(self) -> str:
        """The events as one reads them."""
        return f"{self.events}?raw=1"

    def step(self, step_id: str) -> str:
        """The panel of a step, as HTML."""
        return self._reverse("step", step_id)

    def payload(self, part: str) -> str:
        """A payload of the run, whole."""
        return self._reverse("payload", part)

    def step_payload(self, step_id: str, part: str) -> str:
        """A payload of a step, whole."""
        return self._reverse("step_payload", step_id, part)

    def operation(self, name: str) -> str:
        """The page that asks about an operation."""
        return self._reverse("operation", name)

    def answer(self, step_id: str) -> str:
        """The page on which an approval is answered."""
        return self._reverse("answer", step_id)

    @property
    def workers(self) -> str:
        """Who listens on the queues that the run waits for, as HTML."""
        return self._reverse("workers")

    @property
    def export(self) -> str:
        """All that is stored of the run, as JSON."""
        return self._reverse("export")
