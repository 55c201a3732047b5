"""A graph as the text of a Mermaid flowchart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pikku_storage.workflows.graphs.view import EdgeView, GraphView, NodeView

_STYLES = {
    "pending": "fill:#f5f5f5,stroke:#8a8a8a,stroke-dasharray:4 3",
    "scheduled": "fill:#f5f5f5,stroke:#8a8a8a,stroke-dasharray:4 3",
    "running": "fill:#dbeafe,stroke:#1d4ed8",
    "succeeded": "fill:#dcfce7,stroke:#15803d",
    "failed": "fill:#fee2e2,stroke:#b91c1c",
}
_ESCAPES = {character: f"#{ord(character)};" for character in '#"<>&|[](){}`'}


def flowchart(view: GraphView) -> str:
    """The diagram, from top to bottom. Nodes that a run has been at have the colour of their state."""
    ids = {node.name: f"n{index}" for index, node in enumerate(view.nodes)}
    lines = ["graph TD", *(f"  {ids[node.name]}{_box(node)}" for node in view.nodes)]
    lines += [f"  {ids[edge.source]} {_arrow(edge)} {ids[edge.target]}" for edge in view.edges]
    for status in sorted({node.status for node in view.nodes if node.status is not None}):
        members = ",".join(ids[node.name] for node in view.nodes if node.status == status)
        lines += [f"  classDef {status} {_STYLES[status]}", f"  class {members} {status}"]
    return "\n".join(lines)


def _box(node: NodeView) -> str:
    lines = [_escaped(node.name)]
    if node.function != node.name:
        lines.append(f"<small>{_escaped(node.function)}</small>")
    label = "<br/>".join(lines)
    if node.is_entry:
        return f'(["{label}"])'
    return f'[["{label}"]]' if node.has_items else f'["{label}"]'


def _arrow(edge: EdgeView) -> str:
    if edge.is_error:
        return "-.->|error|"
    return "-->" if edge.branch is None else f'-->|"{_escaped(edge.branch)}"|'


def _escaped(text: str) -> str:
    """As Mermaid's own entities: nothing in a name can end the label, or be markup."""
    return "".join(_ESCAPES.get(character, character) for character in " ".join(text.split()))
