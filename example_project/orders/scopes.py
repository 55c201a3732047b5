"""Who may do what in the shop; found by itself, and stored by `manage.py sync_scopes`."""

from pikku_storage.access.declarations import declare_role

OPERATOR_ROLE = "shop-operator"

declare_role(
    OPERATOR_ROLE,
    [
        "admin:workflows:read",
        "admin:agents:read",
        "admin:channels:read",
        "admin:deployments:read",
        "admin:webhooks:read",
    ],
    "Looks after the shop's workflows, and changes nothing",
)
