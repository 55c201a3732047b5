"""What secrets and credentials have in common: lists and pages without values, and a page for each thing to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.db.models.functions import Substr
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods

from console.base import EngineRowAdmin
from console.filters import ValuesMenu
from console.jsontree import as_text
from console.keyset import KeysetChangeList
from console.moments import since
from console.parts import Fact
from console.secrets.audits import audits_of
from console.secrets.forms import ValueForm, WhyForm
from console.secrets.keys import keys_of, progress_of
from console.secrets.privacy import private
from console.secrets.states import KeyStatus
from console.templatetags.pikku_console import pill
from pikku_storage.access.actors import actor_of
from pikku_storage.auditing import AuditEvent, record
from pikku_storage.crypto import bound
from pikku_storage.exceptions import PikkuError, SecretNotFoundError
from pikku_storage.secrets.keyring import Keyring
from pikku_storage.secrets.keys import Purpose
from pikku_storage.secrets.store import SealedStore
from pikku_storage.secrets.values import SecretValue

_METHODS = ["GET", "HEAD", "POST"]


class SealedRowAdmin(EngineRowAdmin):
    """Rows whose values are sealed. A page shows names, key versions, times and the audit; whoever may reveal a value
    sees it once, after being asked, and that is audited whatever the settings say of other reads."""

    write_verb: ClassVar[str]
    """Whoever has it may set and delete."""
    purpose: ClassVar[Purpose]
    new_form: ClassVar[type[ValueForm]]

    list_filter: ClassVar[Any] = (("key_version", ValuesMenu),)
    change_list_template = "console/secrets/list.html"

    class Media:
        css = {"all": ["console/secrets.css"]}

    # -- what secrets and credentials do differently -----------------------------------------------------------------

    def service(self) -> SealedStore:
        """The service; it audits all that is done here."""
        raise NotImplementedError

    def open_value(self, row: Any, **doing: Any) -> SecretValue | None:
        """The value of a row, or `None` or `SecretNotFoundError` if it is gone."""
        raise NotImplementedError

    def put_value(self, row: Any, value: SecretValue, **doing: Any) -> None:
        """Store another value."""
        raise NotImplementedError

    def remove(self, row: Any, **doing: Any) -> None:
        """Delete it."""
        raise NotImplementedError

    def row_of(self, values: dict[str, Any]) -> Any:
        """The row, not stored yet, that a form for a new one names; raises `PayloadError` for what is no name."""
        raise NotImplementedError

    def audits(self, row: Any) -> QuerySet[Any]:
        """The audit of a row."""
        raise NotImplementedError

    def own_facts(self, row: Any) -> list[Fact]:
        """What stands on its page besides what all have."""
        return []

    # -- the gate ----------------------------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Who may set."""
        return self.may(request, self.write_verb, "add")

    def may_set(self, request: HttpRequest) -> bool:
        """Whether the caller may give a row another value."""
        return self.may(request, self.write_verb, "change")

    def may_delete(self, request: HttpRequest) -> bool:
        """Whether the caller may delete a row."""
        return self.may(request, self.write_verb, "delete")

    def may_reveal(self, request: HttpRequest) -> bool:
        """Whether the caller may see a value."""
        return self.may(request, "reveal", "view")

    # -- addresses ---------------------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """The form for a new one, too."""
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        return [path("add/", self._page(self.add_view), name=f"{name}_add"), *super().get_urls()]

    def object_urls(self, name: str) -> list[URLPattern]:
        """A page for each thing to do."""
        pages = {"set": self.set_view, "reveal": self.reveal_view, "delete": self.delete_view}
        return [
            path(f"<str:object_id>/{each}/", self._page(view), name=f"{name}_{each}") for each, view in pages.items()
        ]

    def _page(self, view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        guarded: Callable[..., HttpResponse] = self.admin_site.admin_view(private(require_http_methods(_METHODS)(view)))
        return guarded

    def url(self, view: str, row: Any = None) -> str:
        """The address of a view."""
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{view}"
        return reverse(name, args=[] if row is None else [quote(row.pk)], current_app=self.admin_site.name)

    # -- the list ----------------------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With the beginning of the wrapped key, which tells the format, and no more of it."""
        rows = super().get_queryset(request)
        told: QuerySet[Any] = rows.annotate(console_prefix=Substr("wrapped_dek", 1, len(bound.PREFIX)))
        return told

    def prepare_page(self, request: HttpRequest, rows: list[Any]) -> None:
        """What is known of the keys of these rows."""
        keys = keys_of(self._keyring(), {row.key_version for row in rows})
        for row in rows:
            row.__dict__["console_key"] = keys.status_of(row.key_version)

    def list_context(self, request: HttpRequest, changes: KeysetChangeList) -> dict[str, Any]:
        """The state of the keys, on top of the first page."""
        context = super().list_context(request, changes)
        if changes.is_first_page and not (changes.query or changes.has_active_filters):
            context["progress"] = progress_of(self.model, self._keyring())
        return context

    @admin.display(description=_("key version"))
    def version(self, row: Any) -> SafeString:
        """The version, and what is wrong with its key."""
        status = row.__dict__["console_key"]
        return format_html("{}{}", row.key_version, "" if status is KeyStatus.CURRENT else pill(status.value))

    @admin.display(description=_("format"))
    def sealed_format(self, row: Any) -> str:
        """Whether the value is bound to its place."""
        return gettext("bound") if row.console_prefix == bound.PREFIX else gettext("compatible")

    @admin.display(description=_("created"))
    def created(self, row: Any) -> SafeString:
        """How long ago; the time on hover."""
        return since(row.created_at)

    @admin.display(description=_("changed"))
    def changed(self, row: Any) -> SafeString:
        """How long ago it was set or rotated; the time on hover."""
        return since(row.updated_at)

    # -- the page of a row -------------------------------------------------------------------------------------------

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """What is known of it, and its audit; no value, sealed or not."""
        row = self._row(request, row_id)
        audits, has_more = audits_of(self.audits(row))
        keys = keys_of(self._keyring(), {row.key_version})
        context = {
            "row": row,
            "name": self.name_of(row),
            "title": self.name_of(row),
            "key_status": keys.status_of(row.key_version),
            "format": self.sealed_format(row),
            "own_facts": self.own_facts(row),
            "audits": audits,
            "has_more_audits": has_more,
            "operations": [
                (gettext("Reveal"), self.url("reveal", row), self.may_reveal(request)),
                (gettext("Set"), self.url("set", row), self.may_set(request)),
                (gettext("Delete"), self.url("delete", row), self.may_delete(request)),
            ],
        }
        return self.render(request, "secrets/row.html", context)

    # -- what may be done --------------------------------------------------------------------------------------------

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Set one of a new name."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = self.new_form(_posted(request))
        if request.method == "POST" and form.is_valid():
            try:
                row = self.row_of(form.cleaned_data)
                if self.model._default_manager.using(self._keyring().using).filter(pk=row.pk).exists():
                    text = gettext("There is one already. Set it on its own page, so that nobody replaces it unawares.")
                    form.add_error("name", text)
                else:
                    return self._set(request, row, form, is_new=True)
            except PikkuError as error:
                form.add_error(None, str(error))
        title = gettext("Add %(name)s") % {"name": self.opts.verbose_name}
        explanation = gettext("The value is encrypted before it is stored. No list or page shows it.")
        return self._ask(request, None, form, title, explanation, button=gettext("Set"))

    def set_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give it another value."""
        row = self._row(request, unquote(object_id))
        if not self.may_set(request):
            raise self._refusal(request, row, "written")
        form = ValueForm(_posted(request))
        if request.method == "POST" and form.is_valid():
            try:
                return self._set(request, row, form, is_new=False)
            except PikkuError as error:
                form.add_error(None, str(error))
        explanation = gettext(
            "The value takes the place of the one that is there, which cannot be brought back. Whoever reads it gets "
            "the new one from now on."
        )
        return self._ask(request, row, form, gettext("Set"), explanation, button=gettext("Set"))

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Ask once more, and delete it."""
        row = self._row(request, unquote(object_id))
        if not self.may_delete(request):
            raise self._refusal(request, row, "deleted")
        form = WhyForm(_posted(request))
        if request.method == "POST" and form.is_valid():
            # First, because it names a row that there is.
            self.log_deletions(request, self.model._default_manager.filter(pk=row.pk).only("pk", *self.name_columns))
            self.remove(row, by=request.user, reason=form.cleaned_data["reason"])
            messages.success(request, gettext("%(name)s is deleted.") % {"name": self.name_of(row)})
            return HttpResponseRedirect(self.url("changelist"))
        explanation = gettext("Nothing can bring it back, and whoever reads it will fail. Its audit stays.")
        return self._ask(request, row, form, gettext("Delete"), explanation, button=gettext("Delete"), is_grave=True)

    def reveal_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask once more, and show the value on the answer to that."""
        row = self._row(request, unquote(object_id))
        if not self.may_reveal(request):
            raise self._refusal(request, row, "read")
        form = WhyForm(_posted(request))
        if request.method == "POST" and form.is_valid():
            try:
                value = self.open_value(row, by=request.user, reason=form.cleaned_data["reason"])
                if value is None:
                    raise self.not_found()
                self.log_change(request, row, _log_text("revealed", form))
                return self._revealed(request, row, value)
            except SecretNotFoundError:
                raise self.not_found() from None
            except PikkuError as error:
                form.add_error(None, str(error))
        explanation = gettext("You will see the value once. That you did, when and why is kept in its audit.")
        return self._ask(request, row, form, gettext("Reveal"), explanation, button=gettext("Reveal"))

    # -- how ---------------------------------------------------------------------------------------------------------

    name_columns: ClassVar[tuple[str, ...]]
    """What `str` of a row is made of."""

    def _keyring(self) -> Keyring:
        return Keyring(self.purpose)

    def _row(self, request: HttpRequest, row_id: str) -> Any:
        row = self.visible_rows(request).filter(pk=row_id).first()
        if row is None:
            raise self.not_found()
        return row

    def _set(self, request: HttpRequest, row: Any, form: ValueForm, *, is_new: bool) -> HttpResponse:
        self.put_value(row, form.cleaned_data["value"], by=request.user, reason=form.cleaned_data["reason"])
        (self.log_addition if is_new else self.log_change)(request, row, _log_text("set", form))
        messages.success(request, gettext("%(name)s is set.") % {"name": self.name_of(row)})
        return HttpResponseRedirect(self.url("change", row))

    def _refusal(self, request: HttpRequest, row: Any, what: str) -> PermissionDenied:
        """For who may see the row and not do that. An attempt is told to the audit trail."""
        if request.method == "POST":
            event = AuditEvent(
                type=f"{self.opts.model_name}.{what}",
                outcome="denied",
                actor=actor_of(request.user),
                wire_type="secrets",
                metadata=self.told_of(row),
            )
            record(event)
        return PermissionDenied()

    def name_of(self, row: Any) -> str:
        """How the row reads in headings and messages."""
        return str(row)

    def told_of(self, row: Any) -> dict[str, Any]:
        """What the audit trail calls the row."""
        raise NotImplementedError

    def _ask(
        self,
        request: HttpRequest,
        row: Any,
        form: forms.Form,
        label: str,
        explanation: str,
        *,
        button: str,
        is_grave: bool = False,
    ) -> HttpResponse:
        is_setting, name = isinstance(form, ValueForm), "" if row is None else self.name_of(row)
        context = {
            "row": row,
            "label": label,
            "name": name,
            "title": f"{label} · {name}" if name else label,
            "explanation": explanation,
            "form": form,
            "button": button,
            "is_grave": is_grave,
            "back": self.url("changelist") if row is None else self.url("change", row),
            "problem": keys_of(self._keyring(), set()).problem if is_setting else "",
        }
        return self.render(request, "secrets/ask.html", context)

    def _revealed(self, request: HttpRequest, row: Any, value: SecretValue) -> HttpResponse:
        shown = SecretValue(_text_of(value))
        context = {
            "row": row,
            "name": self.name_of(row),
            "title": gettext("Revealed · %(name)s") % {"name": self.name_of(row)},
            "shown": shown,
            "size": len(_text_of(value).encode()),
            "is_json": not isinstance(value.reveal(), str),
            "back": self.url("change", row),
        }
        return self.render(request, "secrets/revealed.html", context)


def _posted(request: HttpRequest) -> QueryDict | None:
    return request.POST if request.method == "POST" else None


def _text_of(value: SecretValue) -> str:
    revealed = value.reveal()
    return revealed if isinstance(revealed, str) else as_text(revealed)


def _log_text(what: str, form: forms.Form) -> str:
    reason = form.cleaned_data["reason"]
    return f"{what}: {reason}" if reason else what
