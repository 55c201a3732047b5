"""Things to be done to rows: each has a page that asks first, and an action of the list for many rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.functional import Promise
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods

from console.base import EngineRowAdmin
from console.formatting import short_id
from pikku_storage.exceptions import PikkuError

SHOWN = 20
"""So many rows are named on the page that asks whether many shall be changed."""


class ReasonForm(forms.Form):
    """Why."""

    reason = forms.CharField(
        label=_("Reason"), max_length=500, required=False, help_text=_("Kept for whoever asks later.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOperation:
    """One thing to be done to a row.

    `why_not` says of a row why it cannot be done, or nothing. `act` takes the row, the reason and the user, and answers
    whether anything was changed.
    """

    name: str
    label: str | Promise
    done: str | Promise
    explanation: str | Promise
    impossible: str | Promise
    is_possible: Callable[[Any], bool]
    act: Callable[[Any, str, Any], bool]


def action_of(operation: Any) -> Callable[..., HttpResponse | None]:
    """The list's action for an operation with a `name` and a `label`, for whoever may operate."""

    def act(model_admin: Any, request: HttpRequest, rows: QuerySet[Any]) -> HttpResponse | None:
        answer: HttpResponse | None = model_admin.operate_on_many(request, rows, operation)
        return answer

    act.__name__ = f"{operation.name}_selected"
    # The types of `admin.action` know no lazy translations.
    act.short_description = operation.label  # type: ignore[attr-defined]
    act.allowed_permissions = ["operate"]  # type: ignore[attr-defined]
    return act


class OperatedRowAdmin(EngineRowAdmin):
    """Rows with `operations`, for whoever manages the area. What they did is in the admin's log."""

    operations: ClassVar[tuple[RowOperation, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "operations" in vars(cls):
            cls.actions = [action_of(operation) for operation in cls.operations]

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Who manages the area."""
        return self.has_view_permission(request) and self.may(request, "manage")

    def object_urls(self, name: str) -> list[URLPattern]:
        """The pages of the operations."""
        wrap = self.admin_site.admin_view
        view = require_http_methods(["GET", "HEAD", "POST"])(self.operation_view)
        return [path("<str:object_id>/do/<str:operation>/", wrap(view), name=f"{name}_operation")]

    def page_url(self, row_id: str) -> str:
        """The address of a row's page."""
        return self._reverse("change", quote(row_id))

    def operation_links(self, request: HttpRequest, row: Any) -> list[dict[str, str]]:
        """The buttons of a row's page, for those who may press them; one without an address says why."""
        if not self.has_operate_permission(request):
            return []
        return [
            {
                "label": str(each.label),
                "url": self._reverse("operation", quote(row.pk), each.name) if each.is_possible(row) else "",
                "problem": "" if each.is_possible(row) else str(each.impossible),
            }
            for each in self.operations
        ]

    # -- one row -----------------------------------------------------------------------------------------------------

    def operation_view(self, request: HttpRequest, object_id: str, operation: str) -> HttpResponse:
        """Ask, do it, and go back to the row, or to the list if it is gone."""
        row = self.visible_rows(request).filter(pk=unquote(object_id)).first()
        chosen = next((each for each in self.operations if each.name == operation), None)
        if row is None or chosen is None:
            raise self.not_found()
        if not self.has_operate_permission(request):
            raise PermissionDenied
        form = ReasonForm(request.POST if request.method == "POST" else None)
        is_possible = chosen.is_possible(row)
        if request.method == "POST" and is_possible and form.is_valid():
            try:
                return self._done(request, row, chosen, chosen.act(row, form.cleaned_data["reason"], request.user))
            except PikkuError as error:
                form.add_error(None, str(error))
        context = {
            "row": row,
            "operation": chosen,
            "form": form,
            "problem": "" if is_possible else chosen.impossible,
            "row_url": self.page_url(row.pk),
            "title": f"{chosen.label} · {row}",
        }
        return self.render(request, "operation.html", context)

    def _done(self, request: HttpRequest, row: Any, operation: RowOperation, changed: bool) -> HttpResponse:
        name = {"name": self.opts.verbose_name, "id": short_id(row.pk), "done": operation.done}
        if changed:
            self.log_change(request, row, log_text(operation.name, request))
            messages.success(request, gettext("%(name)s %(id)s %(done)s.") % name)
        else:
            text = gettext("%(name)s %(id)s was not changed: somebody else was faster.")
            messages.warning(request, text % name)
        is_there = self.visible_rows(request).filter(pk=row.pk).exists()
        return HttpResponseRedirect(self.page_url(row.pk) if is_there else self._reverse("changelist"))

    # -- many rows ---------------------------------------------------------------------------------------------------

    def operate_on_many(self, request: HttpRequest, rows: QuerySet[Any], operation: Any) -> HttpResponse | None:
        """Ask once more, then do it to each; say what was done and what was left."""
        is_confirmed = "confirmed" in request.POST
        form = ReasonForm(request.POST if is_confirmed else None)
        chosen = list(rows.order_by(*self.get_keyset(request)))
        possible = [row for row in chosen if operation.is_possible(row)]
        if not is_confirmed or not form.is_valid():
            title = gettext("%(operation)s several") % {"operation": operation.label}
            context = self.question_about_many(operation, form, chosen, possible)
            return self.render(request, "operation_on_many.html", {**context, "title": title})
        done = 0
        for row in possible:
            try:
                if operation.act(row, form.cleaned_data["reason"], request.user):
                    self.log_change(request, row, log_text(operation.name, request))
                    done += 1
            except PikkuError as error:
                messages.error(request, f"{short_id(row.pk)}: {error}")
        self._tell(request, operation, done, len(chosen) - done)
        return None

    def question_about_many(
        self, operation: Any, form: forms.Form, chosen: Sequence[Any], possible: Sequence[Any]
    ) -> dict[str, Any]:
        """What the page is told that asks once more: of the `chosen` rows, it can be done to the `possible` ones."""
        return {
            "operation": operation,
            "form": form,
            "rows": possible[:SHOWN],
            "more": max(0, len(possible) - SHOWN),
            "left": len(chosen) - len(possible),
            "selected": [row.pk for row in chosen],
            "checkbox": ACTION_CHECKBOX_NAME,
            "action": f"{operation.name}_selected",
            "list_url": self._reverse("changelist"),
        }

    def _tell(self, request: HttpRequest, operation: RowOperation, done: int, left: int) -> None:
        if done:
            text = gettext("%(operation)s: done for %(n)d.")
            messages.success(request, text % {"operation": operation.label, "n": done})
        if left:
            text = ngettext("%(n)d was left as it is.", "%(n)d were left as they are.", left)
            messages.warning(request, text % {"n": left})

    def _reverse(self, view: str, *args: str) -> str:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{view}"
        return reverse(name, args=args, current_app=self.admin_site.name)


def log_text(name: str, request: HttpRequest) -> str:
    """What the admin's log keeps: which operation, and the reason that was given."""
    reason = request.POST.get("reason", "")
    return f"{name}: {reason}" if reason else name
