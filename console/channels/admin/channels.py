"""Channels: the list, the page of one, and closing it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from console.base import EmptyState
from console.channels.reads import read_subscription_counts, read_topics
from console.channels.states import ChannelState, state_of
from console.filters import PeriodFilter
from console.formatting import ago, duration, short_id
from console.gate import CHANNELS
from console.keyset import KeysetChangeList
from console.moments import since
from console.operations import OperatedRowAdmin, RowOperation
from console.owners import owner_ids_of, owner_names
from console.parts import Fact, PayloadView
from console.plain import json_text
from console.templatetags.pikku_console import pill
from pikku_storage.channels.models import Channel
from pikku_storage.channels.querysets import CLOSING
from pikku_storage.channels.service import ChannelStore

_NOTHING = "—"
_PARTS = ("opening_data", "state")


def _close(channel: Channel, reason: str, user: Any) -> bool:
    return ChannelStore(using=channel._state.db).close_channel(channel.pk, by=user, reason=reason or None)


CLOSE = RowOperation(
    name="close",
    label=_("Close"),
    done=_("is closed"),
    explanation=_(
        "The channel hears of nothing more from now on. The server that has the connection ends it when it next renews "
        "its leases; one that no server looks after is removed at once. The client may connect again."
    ),
    impossible=_("It is closing already."),
    is_possible=lambda channel: channel.holder != CLOSING,
    act=_close,
)


class OpenedFilter(PeriodFilter):
    """By when it was opened."""

    title = _("opened")
    parameter_name = "opened"
    column = "created_at"


@admin.register(Channel)
class ChannelAdmin(OperatedRowAdmin):
    """Connected channels, the newest first."""

    area = CHANNELS
    operations = (CLOSE,)
    keyset = ("-created_at", "-channel_id")
    cheap_columns = ("channel_id", "channel_name", "pikku_user_id", "created_at", "last_wire", "holder", "lease_until")
    list_display = ("state_pill", "name", "short_id", "user", "topics", "opened", "leased")
    list_display_links = ("name", "short_id")
    list_filter = (OpenedFilter,)
    search_fields = ("channel_id",)
    search_help_text = _("A whole channel id, or a user's name or id.")

    # -- the list ----------------------------------------------------------------------------------------------------

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Channel], search_term: str
    ) -> tuple[QuerySet[Channel], bool]:
        """One channel, or those of a user."""
        term = search_term.strip()
        if not term:
            return queryset, False
        return queryset.filter(Q(pk=term) | Q(pikku_user_id__in=[term, *owner_ids_of(term)])), False

    def prepare_page(self, request: HttpRequest, rows: list[Channel]) -> None:
        """Topics and users of all rows at once: two queries."""
        topics = read_subscription_counts(self.get_queryset(request).db, [row.pk for row in rows])
        names = owner_names(row.pikku_user_id for row in rows)
        now = timezone.now()
        for row in rows:
            user = names.get(row.pikku_user_id or "", row.pikku_user_id or "")
            row.__dict__.update(console_topics=topics.get(row.pk, 0), console_user=user, console_now=now)

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Says when there is one."""
        if changes.is_first_page and not (changes.query or changes.has_active_filters):
            return EmptyState(gettext("Nobody is connected."), gettext("A channel is there while a client is."))
        return super().empty_state(changes)

    @admin.display(description=_("state"))
    def state_pill(self, channel: Channel) -> SafeString:
        """Whether it is there."""
        return pill(state_of(channel.holder, channel.lease_until, channel.__dict__["console_now"]).value)

    @admin.display(description=_("name"))
    def name(self, channel: Channel) -> str:
        """The channel's name."""
        return str(channel.channel_name)

    @admin.display(description=_("id"))
    def short_id(self, channel: Channel) -> SafeString:
        """Both ends of the id; the whole one on hover."""
        return format_html('<code title="{}">{}</code>', channel.pk, short_id(channel.pk))

    @admin.display(description=_("user"), empty_value=_NOTHING)
    def user(self, channel: Channel) -> str | None:
        """The user's name, or id."""
        return channel.__dict__["console_user"] or None

    @admin.display(description=_("topics"))
    def topics(self, channel: Channel) -> int:
        """How many topics it hears of."""
        return int(channel.__dict__["console_topics"])

    @admin.display(description=_("opened"))
    def opened(self, channel: Channel) -> SafeString:
        """How long ago; the time on hover."""
        return since(channel.created_at, channel.__dict__["console_now"])

    @admin.display(description=_("leased"), empty_value=_NOTHING)
    def leased(self, channel: Channel) -> str | None:
        """For how much longer, or since when no more."""
        return _lease(channel, channel.__dict__["console_now"])

    # -- the page ----------------------------------------------------------------------------------------------------

    def object_urls(self, name: str) -> list[URLPattern]:
        """The payloads, too."""
        view = self.admin_site.admin_view(require_safe(self.payload_view))
        address = path("<str:object_id>/payload/<str:part>/", view, name=f"{name}_payload")
        return [*super().object_urls(name), address]

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """Whose it is, what it hears of, and its state."""
        channel = self.visible_rows(request).defer(None).filter(pk=row_id).first()
        if channel is None:
            raise self.not_found()
        now = timezone.now()
        state = state_of(channel.holder, channel.lease_until, now)
        topics, has_more = read_topics(channel._state.db or "default", channel.pk)
        parts = {"opening_data": gettext("Opening data"), "state": gettext("State")}
        subscriptions = reverse("admin:pikku_channels_channelsubscription_changelist", current_app=self.admin_site.name)
        context = {
            "channel": channel,
            "state": state.value,
            "banner": _banner(state),
            "title": f"{channel.channel_name} · {short_id(channel.pk)}",
            "operations": self.operation_links(request, channel),
            "facts": _facts(channel, now),
            "topics": [(topic, f"{subscriptions}?{urlencode({'q': topic.name})}") for topic in topics],
            "has_more": has_more,
            "payloads": [
                PayloadView.of(title, getattr(channel, part), self._reverse("payload", quote(channel.pk), part))
                for part, title in parts.items()
                if getattr(channel, part) is not None
            ],
        }
        return self.render(request, "channels/channel.html", context)

    def payload_view(self, request: HttpRequest, object_id: str, part: str) -> HttpResponse:
        """The opening data or the state, whole, as text."""
        rows = self.visible_rows(request).filter(pk=unquote(object_id))
        row = rows.values(part).first() if part in _PARTS else None
        if row is None:
            raise self.not_found()
        return json_text(row[part])


def _lease(channel: Channel, now: datetime) -> str | None:
    if channel.lease_until is None:
        return None
    if channel.lease_until > now:
        return gettext("for another %(left)s") % {"left": duration(channel.lease_until - now)}
    return gettext("ran out %(when)s") % {"when": ago(channel.lease_until, now)}


def _facts(channel: Channel, now: datetime) -> list[Fact]:
    return [
        Fact.person(gettext("User"), channel.pikku_user_id, owner_names([channel.pikku_user_id])),
        Fact.since(gettext("Opened"), channel.created_at, now),
        Fact.since(gettext("Last wire"), channel.last_wire, now),
        Fact(gettext("Leased"), _lease(channel, now) or _NOTHING),
        Fact(gettext("Held by"), channel.holder or _NOTHING, channel.holder or ""),
    ]


def _banner(state: ChannelState) -> str:
    return {
        ChannelState.LAPSED: gettext(
            "Its lease ran out: the server that had it is gone, it seems. The sweep removes it."
        ),
        ChannelState.CLOSING: gettext("It was closed. The server that has the connection ends it shortly."),
        ChannelState.UNLEASED: gettext("Nobody renews a lease on it, so whether it is connected is not known."),
    }.get(state, "")
