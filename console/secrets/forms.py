"""Forms to set, reveal and delete. What was typed as a value is never written into a page again."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.debug import sensitive_variables

from console.owners import owner_ids_of, owner_names
from pikku_storage.secrets.models import NAME_LENGTH, REASON_LENGTH
from pikku_storage.secrets.values import SecretValue


class HiddenText(forms.Textarea):
    """Several lines that are covered while one types, and that come back empty."""

    def __init__(self) -> None:
        super().__init__({"rows": 5, "class": "pk-covered", "autocomplete": "off", "spellcheck": "false"})

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        """Without the value."""
        return super().get_context(name, None, attrs)


class WhyForm(forms.Form):
    """The reason, which the audit keeps."""

    reason = forms.CharField(
        label=_("Reason"),
        required=False,
        max_length=REASON_LENGTH,
        help_text=_("For the audit. Not needed, and no place for the value."),
    )


class ValueForm(WhyForm):
    """A new value. It is cleaned into a `SecretValue`."""

    kind = forms.ChoiceField(
        label=_("The value is"),
        choices=(("text", _("a text, as it stands")), ("json", _("JSON, such as an object or a number"))),
        initial="text",
        widget=forms.RadioSelect,
    )
    value = forms.CharField(label=_("Value"), strip=False, widget=HiddenText)
    shown = forms.BooleanField(label=_("Show what I type"), required=False)

    field_order = ("name", "user", "kind", "value", "shown", "reason")

    @sensitive_variables()
    def clean(self) -> dict[str, Any]:
        """The value, out of sight."""
        values = super().clean() or {}
        text = values.pop("value", None)
        if text is not None and "kind" in values:
            # Browsers send lines as CR LF, whatever was pasted.
            values["value"] = self._parsed(text.replace("\r\n", "\n"), values["kind"])
        return values

    @sensitive_variables()
    def _parsed(self, text: str, kind: str) -> SecretValue | None:
        if kind == "text":
            return SecretValue(text)
        try:
            return SecretValue(json.loads(text))
        except json.JSONDecodeError as error:
            place = {"line": error.lineno, "column": error.colno}
        except (ValueError, RecursionError):
            place = {"line": 1, "column": 1}
        # Out here, because the parser's error holds the whole text.
        self.add_error("value", gettext("This is no JSON: look at line %(line)d, column %(column)d.") % place)
        return None


class NewSecretForm(ValueForm):
    """A secret of a new name."""

    name = forms.CharField(label=_("Name"), max_length=NAME_LENGTH, strip=False)


class NewCredentialForm(ValueForm):
    """A credential of a new name, or of another user."""

    name = forms.CharField(label=_("Name"), max_length=NAME_LENGTH, strip=False)
    user = forms.CharField(
        label=_("User"),
        required=False,
        max_length=NAME_LENGTH,
        help_text=_("A user's name or id. Without one it is everybody's."),
    )

    def clean_user(self) -> str | None:
        """The user's id; `None` for everybody's."""
        given: str = self.cleaned_data["user"]
        if not given:
            return None
        found = owner_ids_of(given) or list(owner_names([given]))
        if not found:
            raise ValidationError(gettext("There is no such user."))
        return found[0]
