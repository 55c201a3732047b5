"""The form of a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from pikku_storage.exceptions import PayloadError, WorkflowInputError
from pikku_storage.json import to_json_object
from pikku_storage.workflows.models import WorkflowSchedule
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.schedules.fires import Fires, local

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[WorkflowSchedule]
else:
    # Generic for the type checker only.
    _ModelForm = forms.ModelForm


class ScheduleForm(_ModelForm):
    """What an operator may say of a schedule. It only looks whether `ScheduleService` will take it, field by field."""

    workflow = forms.ChoiceField(label=_("Workflow"))
    input = forms.JSONField(
        label=_("Input"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 5, "class": "vLargeTextField"}),
        help_text=_("A JSON object with the workflow's parameters."),
    )
    owner_id = forms.CharField(
        label=_("Owner"),
        required=False,
        max_length=255,
        help_text=_("The id of the user who owns the runs, or nothing."),
    )

    class Meta:
        model = WorkflowSchedule
        fields = ("name", "workflow", "input", "owner_id", "cron", "timezone", "catch_up", "overlap", "enabled")
        help_texts = {
            "cron": _("Minute, hour, day of the month, month, day of the week; or a name such as @daily."),
            "timezone": _("As the IANA database names it: Europe/Berlin."),
            "catch_up": _("What is started when no relay ran in time."),
            "enabled": _("A schedule that is not fires no more, and catches nothing up when it is again."),
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "workflow" in self.fields:
            names = sorted(registry.workflows)
            self.fields["workflow"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
        if "input" in self.fields and not self.instance.pk:
            self.fields["input"].initial = {}
        if "timezone" in self.fields and not self.instance.pk:
            self.fields["timezone"].initial = settings.TIME_ZONE

    def clean_name(self) -> str:
        """One that is free."""
        name: str = self.cleaned_data["name"]
        definition = registry.workflows.get(name)
        if definition is not None and definition.schedule is not None:
            raise ValidationError(gettext("The code declares a schedule of this name."))
        if WorkflowSchedule.objects.filter(pk=WorkflowSchedule.id_of(name)).exists():
            raise ValidationError(gettext("There is a schedule of this name."))
        return name

    def clean_input(self) -> dict[str, Any]:
        """An object of what can be stored."""
        value = self.cleaned_data["input"]
        try:
            return to_json_object({} if value is None else value, root="$input")
        except PayloadError as error:
            raise ValidationError(str(error)) from None

    def clean_cron(self) -> str:
        """An expression that fires."""
        cron: str = self.cleaned_data["cron"]
        try:
            return Fires.of(cron, "UTC").cron
        except ValueError as error:
            raise ValidationError(str(error)) from None

    def clean_timezone(self) -> str:
        """A time zone that there is."""
        name: str = self.cleaned_data["timezone"]
        try:
            local(timezone.now(), name)
        except ValueError as error:
            raise ValidationError(str(error)) from None
        return name

    def clean(self) -> dict[str, Any]:
        """The input fits the workflow."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        definition = registry.workflows.get(values.get("workflow") or self.instance.workflow)
        if definition is not None and isinstance(values.get("input"), Mapping):
            try:
                definition.check(values["input"])
            except WorkflowInputError as error:
                self.add_error("input", str(error))
        return values
