"""Subscriptions: who hears of what, by topic."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from console.base import EmptyState, EngineRowAdmin
from console.formatting import short_id
from console.gate import CHANNELS
from console.keyset import KeysetChangeList
from console.tabs import COUNT_UP_TO, bounded, count_bounded
from pikku_storage.channels.models import ChannelSubscription


@admin.register(ChannelSubscription)
class SubscriptionAdmin(EngineRowAdmin):
    """Topics with the channels that hear of them, by name."""

    area = CHANNELS
    keyset = ("topic", "channel_id")
    cheap_columns = ("key", "topic", "channel_id")
    list_display = ("topic", "channel_link")
    list_display_links = None
    search_fields = ("topic",)
    search_help_text = _("A whole topic or channel id.")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[ChannelSubscription], search_term: str
    ) -> tuple[QuerySet[ChannelSubscription], bool]:
        """A topic, or a channel's."""
        term = search_term.strip()
        return (queryset.filter(Q(topic=term) | Q(channel_id=term)) if term else queryset), False

    def list_context(self, request: HttpRequest, changes: KeysetChangeList) -> dict[str, Any]:
        """Says how many hear of the topic that was searched for."""
        context = super().list_context(request, changes)
        topic = changes.query.strip()
        if topic:
            count = count_bounded(self.get_queryset(request).filter(topic=topic))
            text = ngettext("%(n)s channel hears of %(topic)s.", "%(n)s channels hear of %(topic)s.", count)
            context["list_note"] = text % {"n": bounded(min(count, COUNT_UP_TO + 1)), "topic": topic}
        return context

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Says when there is one."""
        if changes.is_first_page and not changes.query:
            return EmptyState(gettext("No channel hears of anything."), gettext("Channels subscribe to topics."))
        return super().empty_state(changes)

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """The topic and the channel: there is no more to it."""
        subscription = self.visible_rows(request).filter(pk=row_id).first()
        if subscription is None:
            raise self.not_found()
        title = subscription.topic
        context = {"subscription": subscription, "channel_link": self.channel_link(subscription), "title": title}
        return self.render(request, "channels/subscription.html", context)

    @admin.display(description=_("channel"))
    def channel_link(self, subscription: ChannelSubscription) -> SafeString:
        """The channel's page."""
        channel_id = subscription.channel_id
        return format_html(
            '<a href="{}" title="{}"><code>{}</code></a>',
            self._channel_url(channel_id),
            channel_id,
            short_id(channel_id),
        )

    def _channel_url(self, channel_id: str) -> str:
        return reverse(
            "admin:pikku_channels_channel_change", args=[quote(channel_id)], current_app=self.admin_site.name
        )
