"""The form with which operators pause a workflow and change its limits."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from pikku_storage.workflows.limits import RateLimit
from pikku_storage.workflows.models import WorkflowControl
from pikku_storage.workflows.registry import registry


class ControlForm(forms.ModelForm):  # type: ignore[type-arg]
    """What an operator may set for a workflow. An empty limit is as the code says."""

    workflow = forms.ChoiceField(label=_("Workflow"))
    is_paused = forms.BooleanField(
        label=_("Paused"),
        required=False,
        help_text=_("None of its runs goes on. Runs may be started, and wait."),
    )
    paused_reason = forms.CharField(label=_("Reason"), required=False, max_length=500)
    concurrency = forms.IntegerField(
        label=_("Concurrency"), required=False, min_value=1, help_text=_("So many of its runs may be inside at once.")
    )
    concurrency_per_key = forms.IntegerField(
        label=_("Concurrency per key"),
        required=False,
        min_value=1,
        help_text=_("So many of each key, such as a tenant."),
    )
    rate_limit = forms.CharField(
        label=_("Rate limit"), required=False, max_length=64, help_text=_("How many may begin in a while: 100/1m.")
    )

    class Meta:
        model = WorkflowControl
        fields = ("workflow", "paused_reason", "concurrency", "concurrency_per_key", "rate_limit")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "workflow" in self.fields:
            names = sorted(registry.workflows)
            self.fields["workflow"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
        self.fields["is_paused"].initial = self.instance.paused_at is not None

    def clean_rate_limit(self) -> str | None:
        """One that can be read, or `None`."""
        value: str = self.cleaned_data["rate_limit"]
        if not value:
            return None
        try:
            RateLimit.of(value)
        except ValueError as error:
            raise ValidationError(str(error)) from None
        return value

    def clean_paused_reason(self) -> str | None:
        """`None` for nothing."""
        return self.cleaned_data["paused_reason"] or None

    def clean(self) -> dict[str, Any]:
        """A reason belongs to a pause."""
        values = super().clean() or {}
        if values.get("paused_reason") and not values.get("is_paused"):
            self.add_error("paused_reason", gettext("A reason is for a workflow that is paused."))
        return values
