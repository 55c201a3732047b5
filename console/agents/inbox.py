"""What waits for an answer of somebody: approvals of agents' tool calls, and gates of workflows, in one order.

The oldest comes first. Two streams of rows are merged, each read by its own index; a page is one read of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from console.agents.addresses import ThreadUrls
from console.agents.conversation import Allowance
from console.agents.reads import read_approval_threads, read_undated
from console.agents.resources import name_of, resource_names
from console.agents.threadpage import PendingView, pending_view
from console.workflows.runurls import RunUrls
from pikku_storage.access.actors import Actor
from pikku_storage.access.ownership import Ownership
from pikku_storage.agents import reads as agent_reads
from pikku_storage.agents.records import Approval
from pikku_storage.workflows import reads as workflow_reads
from pikku_storage.workflows.policies import ApprovalPolicy
from pikku_storage.workflows.records import OpenApproval

PAGE = 25
SCANNED = 200
"""So many gates are looked at for a page: the ones that ask somebody else are left out."""
_CALL, _GATE = "call", "gate"
_LAST_CHARACTER = "\U0010ffff"
_SEPARATOR = "~"
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

Key = tuple[datetime, str, str]
"""When it was asked, what it is, and its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One thing that waits: an approval of an agent (`call`), or a gate of a workflow."""

    since: datetime | None
    until: datetime | None
    who: str
    """The agent or the workflow that asks."""
    owner: str
    what: str
    call: PendingView | None = None
    thread_id: str = ""
    thread_title: str = ""
    thread_url: str = ""
    gate: OpenApproval | None = None
    gate_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxPage:
    """A page, and the place after which the next one begins, if there may be more."""

    items: list[Asked]
    next_place: str


def place_after(key: Key) -> str:
    """A key as it stands in an address."""
    return _SEPARATOR.join((key[0].isoformat(), key[1], key[2]))


def key_of(place: str) -> Key | None:
    """What `place_after` made; `None` for anything else."""
    moment, _, rest = place.partition(_SEPARATOR)
    kind, separator, identifier = rest.partition(_SEPARATOR)
    try:
        at = datetime.fromisoformat(moment)
    except ValueError:
        return None
    return (at, kind, identifier) if separator and kind in {_CALL, _GATE} and at.tzinfo is not None else None


def read_page(
    *, agents: str, workflows: str, ownership: Ownership, gatekeeper: Actor | None, after: Key | None, site: str
) -> InboxPage:
    """What waits in the threads of these owners, and at the gates that `gatekeeper` may answer, if there is one.
    `agents` and `workflows` are the databases. Six queries at most."""
    # What nobody knows the age of has no place in the order: it comes first.
    undated = read_undated(agents, ownership, PAGE) if after is None else []
    calls = agent_reads.pending_approvals(agents, ownership, _after(after, _CALL) or (_BEGINNING, ""), PAGE + 1)
    gates: list[OpenApproval] = []
    if gatekeeper is not None:
        gates = workflow_reads.open_approvals(workflows, {}, _after(after, _GATE), SCANNED)
    taken, last, is_all = _merged(calls, gates, gatekeeper)
    return InboxPage(
        items=list(_described(agents, [*undated, *taken], site)),
        next_place="" if is_all or last is None else place_after(last),
    )


def _after(key: Key | None, kind: str) -> tuple[datetime, str] | None:
    """Where a stream goes on: of two kinds at the same moment, the calls come first."""
    if key is None:
        return None
    if key[1] == kind:
        return key[0], key[2]
    return key[0], _LAST_CHARACTER if kind < key[1] else ""


def _merged(
    calls: list[Approval], gates: list[OpenApproval], gatekeeper: Actor | None
) -> tuple[list[Approval | OpenApproval], Key | None, bool]:
    """Those that the page has, the key of the last row that was looked at, and whether there are no more."""
    rows: list[Approval | OpenApproval] = [*calls, *gates]
    keyed = sorted(((_key(row), row) for row in rows), key=lambda each: each[0])
    ends = [_key(stream[-1]) for stream, most in ((calls, PAGE + 1), (gates, SCANNED)) if len(stream) >= most]
    # Beyond the end of a stream of which there is more, the order of the two is not known.
    known = [each for each in keyed if not ends or each[0] <= min(ends)]
    taken: list[Approval | OpenApproval] = []
    last = None
    for place, (key, row) in enumerate(known):
        last = key
        if isinstance(row, Approval) or _may_answer(row, gatekeeper):
            taken.append(row)
        if len(taken) == PAGE:
            return taken, last, place == len(keyed) - 1 and not ends
    return taken, last, not ends


def _key(row: Approval | OpenApproval) -> Key:
    if isinstance(row, OpenApproval):
        return row.opened_at, _GATE, row.run_id
    return row.asked_at or _BEGINNING, _CALL, row.tool_call_id


def _may_answer(gate: OpenApproval, actor: Actor | None) -> bool:
    policy = ApprovalPolicy(approvers=gate.approvers, scope=gate.approver_scope)
    return actor is not None and policy.refusal(gate.owner_id, actor) is None


def _described(using: str, rows: list[Approval | OpenApproval], site: str) -> Iterator[Asked]:
    threads = read_approval_threads(using, [row.tool_call_id for row in rows if isinstance(row, Approval)])
    owners = [row.owner_id for row in rows if isinstance(row, OpenApproval)]
    names = resource_names([*owners, *(thread["thread__resource_id"] for thread in threads.values())])
    allowance = Allowance()
    for row in rows:
        if isinstance(row, OpenApproval):
            yield Asked(
                since=row.opened_at,
                until=row.expires_at,
                who=row.workflow,
                owner=name_of(row.owner_id, names),
                what=row.reason,
                gate=row,
                gate_url=f"{RunUrls(row.run_id, site).page}#pk-gate",
            )
        elif (thread := threads.get(row.tool_call_id)) is not None:
            view = pending_view(row, site=site, allowance=allowance)
            yield Asked(
                since=row.asked_at,
                until=row.expires_at,
                who=thread["run__agent_name"] or "",
                owner=name_of(thread["thread__resource_id"], names),
                what=view.name,
                call=view,
                thread_id=thread["thread_id"],
                thread_url=ThreadUrls(thread["thread_id"], site).page,
                thread_title=thread["thread__title"] or "",
            )
