"""Model fields that are encrypted at rest, for the models of any app.

What is stored is one text, `pk2.<key version>.<wrapped data key>.<ciphertext>`, bound to its table and column. The keys
and salts are those of secrets, and `manage.py rotate_keys` finds every such field.
"""

from __future__ import annotations

from typing import Any, NoReturn

from django import forms
from django.core import checks
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, TextField, Value, When
from django.db.models.functions import Cast
from django.utils.translation import gettext_lazy as _

from pikku_storage.crypto import bound
from pikku_storage.crypto.bound import Place
from pikku_storage.crypto.envelope import Envelope
from pikku_storage.db.fields import ExactTextField
from pikku_storage.exceptions import InvalidEncryptedPayloadError, SecretDecryptionError, SecretError
from pikku_storage.secrets.keyring import Keyring
from pikku_storage.secrets.keys import Purpose
from pikku_storage.secrets.sealing import NEVER_SEALED, Sealed, seal, unseal
from pikku_storage.secrets.values import SecretValue, hide, plain

KEYRING = Keyring(Purpose.SECRETS)
_IMPOSSIBLE = ("primary_key", "unique", "db_index", "unique_for_date", "unique_for_month", "unique_for_year")


class EncryptedJSONField(ExactTextField):
    """Any JSON. Reading it raises `SecretDecryptionError` if it does not open; it never answers with a ciphertext.

    The database sees only what is sealed, so the one lookup is `isnull`. `bound_as` keeps the values readable when the
    table or column gets another name: give it the old `table.column`.
    """

    description = _("Encrypted JSON")

    def __init__(self, *args: Any, bound_as: str | None = None, **options: Any) -> None:
        self.bound_as = bound_as
        super().__init__(*args, **options)

    def deconstruct(self) -> Any:
        """See `Field.deconstruct`."""
        name, path, args, options = super().deconstruct()
        return name, path, args, options if self.bound_as is None else {**options, "bound_as": self.bound_as}

    def check(self, **options: Any) -> list[checks.CheckMessage]:
        """`pikku.E106`: an option for which the database would have to see the value."""
        found = [option for option in _IMPOSSIBLE if getattr(self, option)]
        return [
            *super().check(**options),
            *[
                checks.Error(
                    f"An encrypted field cannot have {option}: no two stored texts are alike.",
                    hint="Keep what must be found, such as a keyed hash, in a field of its own.",
                    obj=self,
                    id="pikku.E106",
                )
                for option in found
            ],
        ]

    def get_lookup(self, lookup_name: str) -> Any:
        """Only `isnull`."""
        return super().get_lookup(lookup_name) if lookup_name == "isnull" else None

    def get_transform(self, lookup_name: str) -> None:
        """None: nothing can be computed from what is sealed."""

    # -- to and from the database --------------------------------------------------------------------------------------

    def get_db_prep_save(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        """Seal a value, or those of a `bulk_update`. Raises `PayloadError` for what is no JSON, and `SecretError` for
        what is sealed already or would be computed by the database, which must not see it."""
        if hasattr(value, "as_sql"):
            return self._seal_within(value)
        return None if value is None else self._seal(hide(value))

    def from_db_value(self, value: str | None, expression: Any, connection: BaseDatabaseWrapper) -> Any:
        """Open a stored text."""
        return None if value is None else unseal(KEYRING, self.parse(value))

    def _seal_within(self, expression: Any) -> Any:
        if isinstance(expression, Value):
            sealed = None if expression.value is None else self._seal(hide(expression.value))
            return Value(sealed, output_field=TextField())
        if not isinstance(expression, Case | When | Cast):
            raise SecretError(f"The value of {self.subject} cannot be computed by the database, which must not see it")
        copied = expression.copy()
        *conditions, result = expression.get_source_expressions()
        if isinstance(expression, When):
            copied.set_source_expressions([*conditions, self._seal_within(result)])
        else:
            copied.set_source_expressions([self._seal_within(each) for each in (*conditions, result)])
        return copied

    def _seal(self, value: SecretValue) -> str:
        checked = self._checked(plain(value, root=self.subject))
        sealed = seal(KEYRING, self.subject, self.place, checked, binds=True)
        return bound.pack(Envelope(sealed.ciphertext, sealed.wrapped_dek), sealed.key_version)

    def _checked(self, value: SecretValue) -> SecretValue:
        if is_sealed(value.reveal()):
            raise SecretError(f"The value of {self.subject} is sealed already, and would be sealed twice")
        return value

    def parse(self, text: str, subject: str | None = None) -> Sealed:
        """A stored text, taken apart. Raises `SecretDecryptionError` for any other."""
        named = subject or self.subject
        try:
            envelope, version = bound.unpack(text)
        except InvalidEncryptedPayloadError as error:
            raise SecretDecryptionError(named, None, NEVER_SEALED) from error
        return Sealed(subject=named, place=self.place, key_version=version, **envelope._asdict())

    @property
    def subject(self) -> str:
        """What errors call it."""
        return f"field {self.model._meta.label}.{self.name}"

    @property
    def place(self) -> Place:
        """What its values are bound to."""
        table, _dot, column = (self.bound_as or f"{self.model._meta.db_table}.{self.column}").rpartition(".")
        return Place(table, column)

    # -- to and from everything else -----------------------------------------------------------------------------------

    def value_to_string(self, obj: Any) -> NoReturn:
        """Refuse to be serialized, as by `dumpdata`: that would write the plain value into a file."""
        raise SecretError(f"The {self.subject} is not serialized, because that would write its plain value")

    def to_python(self, value: Any) -> Any:
        """The value as it is."""
        return value

    def get_prep_value(self, value: Any) -> Any:
        """The value as it is; it is sealed when it is saved."""
        return value

    def formfield(self, **options: Any) -> Any:
        """See `Field.formfield`."""
        return super().formfield(**{"form_class": forms.JSONField, **options})


class EncryptedTextField(EncryptedJSONField):
    """Text; see `EncryptedJSONField`."""

    description = _("Encrypted text")

    def _checked(self, value: SecretValue) -> SecretValue:
        if not isinstance(value.reveal(), str):
            raise SecretError(f"The value of {self.subject} is no text")
        return super()._checked(value)

    def formfield(self, **options: Any) -> Any:
        """See `Field.formfield`."""
        return super().formfield(**{"form_class": forms.CharField, **options})


def is_sealed(value: Any) -> bool:
    """Whether a value is a text as these fields store them."""
    try:
        return isinstance(value, str) and bool(bound.unpack(value))
    except InvalidEncryptedPayloadError:
        return False
