"""The addresses of the pages of agents."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.urls import reverse


def _reverse(model: str, view: str, *args: str, site: str) -> str:
    return reverse(f"admin:pikku_agents_{model}_{view}", args=[quote(each) for each in args], current_app=site)


def threads_url(site: str = "admin", **filters: str) -> str:
    """The list of threads."""
    return _list("agentthread", site, filters)


def runs_url(site: str = "admin", **filters: str) -> str:
    """The list of runs."""
    return _list("agentrun", site, filters)


def approvals_url(site: str = "admin", **filters: str) -> str:
    """What waits for an answer."""
    return _list("agentapproval", site, filters)


def run_url(run_id: str, site: str = "admin") -> str:
    """The page of a run."""
    return _reverse("agentrun", "change", run_id, site=site)


def approval_url(call_id: str, site: str = "admin") -> str:
    """The page of an approval, which takes the answer."""
    return _reverse("agentapproval", "change", call_id, site=site)


class ThreadUrls:
    """The addresses of one thread's page and of what belongs to it."""

    def __init__(self, thread_id: str, site: str = "admin") -> None:
        self._thread_id = thread_id
        self._site = site

    def _of(self, view: str, *args: str) -> str:
        return _reverse("agentthread", view, self._thread_id, *args, site=self._site)

    @property
    def page(self) -> str:
        """The page itself."""
        return self._of("change")

    @property
    def live(self) -> str:
        """What changes on the page, as HTML."""
        return self._of("live")

    @property
    def export(self) -> str:
        """The thread as a file."""
        return self._of("export")

    @property
    def delete(self) -> str:
        """The page that asks whether to delete it."""
        return self._of("delete")

    def message(self, message_id: str) -> str:
        """The content of a message, whole."""
        return self._of("message", message_id)

    def call(self, call_id: str, part: str) -> str:
        """The arguments or the result of a tool call, whole."""
        return self._of("call", call_id, part)

    def memory(self, scope: str) -> str:
        """A working memory, whole."""
        return self._of("memory", scope)


def _list(model: str, site: str, filters: dict[str, str]) -> str:
    url = _reverse(model, "changelist", site=site)
    return f"{url}?{urlencode(filters)}" if filters else url
