"""Who may answer an approval (contract services.md §1.8). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from pikku_storage.access.actors import Actor
from pikku_storage.access.scopes import has_scopes
from pikku_storage.json import to_text

Approvers: TypeAlias = Literal["any", "owner", "not-initiator"]
APPROVERS: tuple[str, ...] = get_args(Approvers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPolicy:
    """`owner`: only who started the run, if anybody is known; `not-initiator`: somebody else who is signed in. A
    `scope` is needed in addition. Raises `ValueError`."""

    approvers: str = "any"
    scope: str | None = None

    def __post_init__(self) -> None:
        if self.approvers not in APPROVERS:
            raise ValueError(f"approvers is one of {', '.join(APPROVERS)}, not {self.approvers!r}")
        if self.scope is not None:
            to_text(self.scope, root="approver_scope")

    def refusal(self, owner_id: str | None, actor: Actor) -> str | None:
        """Why this actor may not answer; `None` if they may."""
        if self.scope is not None and not has_scopes(actor.scopes, [self.scope]):
            return f"Answering this approval requires the '{self.scope}' scope"
        if self.approvers == "owner" and owner_id is not None and actor.user_id != owner_id:
            return "Only the user who started this run may answer this approval"
        if self.approvers == "not-initiator":
            if actor.user_id is None:
                return "Answering this approval requires a signed-in user"
            if actor.user_id == owner_id:
                return "The user who started this run may not answer this approval"
        return None
