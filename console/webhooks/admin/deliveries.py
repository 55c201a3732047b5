"""Deliveries: the list, the page of one, and sending again or giving up."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from console.base import EmptyState
from console.filters import StatusFilter
from console.formatting import ago, duration, short_id, shorten
from console.gate import WEBHOOKS
from console.keyset import KeysetChangeList
from console.moments import moment, since
from console.operations import OperatedRowAdmin, RowOperation
from console.parts import Fact, PayloadView
from console.plain import plain_text
from console.tabs import status_tabs
from console.templatetags.pikku_console import pill
from console.webhooks.reads import LastAnswer, read_attempts, read_last_answers
from console.webhooks.sent import body_of, host_of, shown_headers, shown_url
from pikku_storage.conf import settings
from pikku_storage.exceptions import WebhookBlockedError
from pikku_storage.webhooks.models import WebhookDelivery
from pikku_storage.webhooks.service import WebhookService
from pikku_storage.webhooks.statuses import DeliveryStatus

_NOTHING = "—"
_ERROR_SHOWN = 70


def _send_again(delivery: WebhookDelivery, reason: str, user: Any) -> bool:
    service = WebhookService(using=delivery._state.db)
    return bool(service.replay(delivery.pk, by=user).status != delivery.status)


def _give_up(delivery: WebhookDelivery, reason: str, user: Any) -> bool:
    service = WebhookService(using=delivery._state.db)
    return bool(service.give_up(delivery.pk, by=user, reason=reason or None).status != delivery.status)


def _waits(delivery: WebhookDelivery) -> bool:
    return delivery.status == DeliveryStatus.PENDING and delivery.claim_token is None


OPERATIONS = (
    RowOperation(
        name="replay",
        label=_("Send again"),
        done=_("is sent again"),
        explanation=_("It is sent once more, with as many attempts as at first. The receiver may see it twice."),
        impossible=_("It is still under way."),
        is_possible=lambda delivery: delivery.status != DeliveryStatus.PENDING,
        act=_send_again,
    ),
    RowOperation(
        name="give-up",
        label=_("Give up"),
        done=_("is given up"),
        explanation=_("There are no more attempts; it has failed. You may send it again later."),
        impossible=_("Only what waits for another attempt can be given up."),
        is_possible=_waits,
        act=_give_up,
    ),
)


class DeliveryStatusFilter(StatusFilter):
    """By what became of it."""

    statuses = DeliveryStatus


@admin.register(WebhookDelivery)
class DeliveryAdmin(OperatedRowAdmin):
    """Every webhook that was sent, the newest first; those of one status by when that was last so."""

    area = WEBHOOKS
    operations = OPERATIONS
    cheap_columns = (
        *("delivery_id", "event", "url", "status", "attempts", "max_attempts", "next_attempt_at", "created_at"),
        *("updated_at", "claim_token"),
    )
    list_display = ("status_pill", "what", "host", "attempts_made", "answer", "next_attempt", "created")
    list_display_links = ("what",)
    list_filter = (DeliveryStatusFilter,)
    search_fields = ("delivery_id",)
    search_help_text = _("A whole delivery id or organisation.")

    # -- the list ----------------------------------------------------------------------------------------------------

    def get_keyset(self, request: HttpRequest) -> tuple[str, str]:
        """By what there is an index for."""
        is_by_status = request.GET.get("status") and not request.GET.get("q")
        return ("-updated_at", "-delivery_id") if is_by_status else ("-created_at", "-delivery_id")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[WebhookDelivery], search_term: str
    ) -> tuple[QuerySet[WebhookDelivery], bool]:
        """One delivery, or those of an organisation."""
        term = search_term.strip()
        return (queryset.filter(Q(pk=term) | Q(organization_id=term)) if term else queryset), False

    def prepare_page(self, request: HttpRequest, rows: list[WebhookDelivery]) -> None:
        """How the last attempt of each ended: one query."""
        answers = read_last_answers(self.get_queryset(request).db, [row.pk for row in rows])
        now = timezone.now()
        for row in rows:
            row.__dict__["console_answer"] = answers.get(row.pk)
            row.__dict__["console_now"] = now

    def list_context(self, request: HttpRequest, changes: KeysetChangeList) -> dict[str, Any]:
        """With the tabs."""
        tabs = status_tabs(changes, self.get_queryset(request), DeliveryStatus)
        return {**super().list_context(request, changes), "tabs": tabs}

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Says how one is sent."""
        if changes.is_first_page and not (changes.query or changes.has_active_filters):
            return EmptyState(
                gettext("No webhook was sent yet."),
                gettext("They appear when something calls WebhookService.send."),
            )
        return super().empty_state(changes)

    @admin.display(description=_("status"))
    def status_pill(self, delivery: WebhookDelivery) -> SafeString:
        """The status in its colour."""
        return pill(delivery.status)

    @admin.display(description=_("event"))
    def what(self, delivery: WebhookDelivery) -> str:
        """The event, or that there is none."""
        return delivery.event or gettext("(no event)")

    @admin.display(description=_("to"))
    def host(self, delivery: WebhookDelivery) -> str:
        """Where it goes; the rest of the URL may be a secret."""
        return host_of(delivery.url)

    @admin.display(description=_("attempts"))
    def attempts_made(self, delivery: WebhookDelivery) -> str:
        """Those made, of how many at most."""
        return f"{delivery.attempts}/{delivery.max_attempts}"

    @admin.display(description=_("last answer"), empty_value=_NOTHING)
    def answer(self, delivery: WebhookDelivery) -> SafeString | None:
        """The status code, or why there was none."""
        answer: LastAnswer | None = delivery.__dict__["console_answer"]
        if answer is None:
            return None
        if answer.status_code is not None:
            kind = "pk-quiet" if answer.status_code // 100 == 2 else "pk-error"
            return format_html('<span class="{}">{}</span>', kind, answer.status_code)
        return format_html(
            '<span class="pk-summary pk-error" title="{}">{}</span>', answer.error, shorten(answer.error, _ERROR_SHOWN)
        )

    @admin.display(description=_("next attempt"), empty_value=_NOTHING)
    def next_attempt(self, delivery: WebhookDelivery) -> SafeString | None:
        """When; or that one is under way."""
        if delivery.claim_token is not None:
            return format_html('<span class="pk-quiet">{}</span>', gettext("under way"))
        if delivery.next_attempt_at is None:
            return None
        at = delivery.next_attempt_at
        return moment(at, _when(at, delivery.__dict__["console_now"]))

    @admin.display(description=_("created"))
    def created(self, delivery: WebhookDelivery) -> SafeString:
        """How long ago; the time on hover."""
        return since(delivery.created_at, delivery.__dict__["console_now"])

    # -- the page ----------------------------------------------------------------------------------------------------

    def object_urls(self, name: str) -> list[URLPattern]:
        """The body, too."""
        view = self.admin_site.admin_view(require_safe(self.body_view))
        return [*super().object_urls(name), path("<str:object_id>/body/", view, name=f"{name}_body")]

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """What is sent, where to, and how the attempts ended."""
        delivery = self.visible_rows(request).defer(None).filter(pk=row_id).first()
        if delivery is None:
            raise self.not_found()
        now = timezone.now()
        attempts = read_attempts(delivery._state.db or "default", delivery.pk)
        body_url = self._reverse("body", quote(delivery.pk))
        context = {
            "delivery": delivery,
            "title": f"{delivery.event or gettext('(no event)')} · {short_id(delivery.pk)}",
            "operations": self.operation_links(request, delivery),
            "banner": _banner(delivery, attempts, now),
            "facts": _facts(delivery, now),
            "url": shown_url(delivery.url),
            "attempts": attempts,
            "is_cut": len(attempts) < delivery.attempts,
            "headers": shown_headers(delivery.headers, settings.WEBHOOK_SIGNATURE_HEADER),
            "body": PayloadView.of(gettext("Body"), body_of(delivery.body), body_url),
        }
        return self.render(request, "webhooks/delivery.html", context)

    def body_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The body, to the byte."""
        row = self.visible_rows(request).filter(pk=unquote(object_id)).values("body").first()
        if row is None:
            raise self.not_found()
        return plain_text(row["body"], "application/json")


def _when(moment: datetime, now: datetime) -> str:
    return gettext("in %(left)s") % {"left": duration(moment - now)} if moment > now else ago(moment, now)


def _facts(delivery: WebhookDelivery, now: datetime) -> list[Fact]:
    facts = [
        Fact(gettext("Attempts"), f"{delivery.attempts}/{delivery.max_attempts}"),
        Fact.since(gettext("Created"), delivery.created_at, now),
        Fact.since(gettext("Changed"), delivery.updated_at, now),
        Fact(gettext("Organisation"), delivery.organization_id or _NOTHING, delivery.organization_id or ""),
        Fact(gettext("Signed with"), delivery.secret_name or _NOTHING, delivery.secret_name or ""),
    ]
    if delivery.retry_delay:
        facts.append(Fact(gettext("Delay"), delivery.retry_delay))
    if delivery.claimed_by:
        facts.append(Fact(gettext("Worker"), delivery.claimed_by, delivery.claimed_by))
    return facts


def _banner(delivery: WebhookDelivery, attempts: list[Any], now: datetime) -> dict[str, str] | None:
    """What it waits for, or why it failed."""
    if delivery.status == DeliveryStatus.FAILED:
        last = attempts[0] if attempts else None
        was_blocked = last is not None and str(last.error).startswith(WebhookBlockedError.code)
        if last is None or (delivery.attempts < delivery.max_attempts and not was_blocked):
            return {"kind": "failed", "text": gettext("It was given up.")}
        why = last.error or gettext("the receiver answered with %(status)s") % {"status": last.status_code}
        return {"kind": "failed", "text": gettext("It has failed: %(why)s") % {"why": why}}
    if delivery.status != DeliveryStatus.PENDING:
        return None
    if delivery.claim_token is not None:
        return {"kind": "waiting", "text": gettext("An attempt is under way.")}
    if delivery.next_attempt_at is None:
        return None
    when = {"when": _when(delivery.next_attempt_at, now)}
    return {"kind": "waiting", "text": gettext("The next attempt is due %(when)s.") % when}
