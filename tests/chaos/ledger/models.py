"""Accounts, the transfers between them, and every call that was to make one."""

from __future__ import annotations

from django.db import models, transaction
from django.db.models import F

from pikku_storage.workflows import current_step


class Account(models.Model):
    """Money that somebody has, or owes."""

    name = models.CharField(max_length=40, primary_key=True)
    cents = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return self.name


class Transfer(models.Model):
    """Money that went from one account to another, once for each invocation."""

    invocation_id = models.CharField(max_length=64, primary_key=True)
    source = models.CharField(max_length=40)
    target = models.CharField(max_length=40)
    cents = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.cents} from {self.source} to {self.target}"


class Call(models.Model):
    """A step function was called. Nothing is unique here, so that a call too many shows."""

    invocation_id = models.CharField(max_length=64)
    step_name = models.CharField(max_length=160)
    attempt = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.step_name}, attempt {self.attempt}"


def note_call() -> None:
    """Note that the current step is called."""
    step = current_step()
    Call._default_manager.create(invocation_id=step.invocation_id, step_name=step.step_name[:160], attempt=step.attempt)


def transfer(source: str, target: str, cents: int) -> None:
    """Move money as the documentation teaches: the invocation id is the key, and a second attempt finds it taken."""
    with transaction.atomic():
        _entry, is_new = Transfer._default_manager.get_or_create(
            invocation_id=current_step().invocation_id,
            defaults={"source": source, "target": target, "cents": cents},
        )
        if not is_new:
            return
        changes = {source: -cents, target: cents}
        # In one order, or two transfers could wait for each other.
        for name in sorted(changes):
            Account._default_manager.filter(pk=name).update(cents=F("cents") + changes[name])
