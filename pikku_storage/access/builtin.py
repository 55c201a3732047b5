"""The scopes of this package's own pages (contract console.md §1 and §2)."""

from __future__ import annotations

from pikku_storage.access.declarations import declare_scopes

declare_scopes(
    {
        "pikku": (
            "Everything of Pikku",
            {
                "console": (
                    "All of the console",
                    {
                        "workflows": ("Workflows", {"read": "See runs and steps", "manage": "Change and delete runs"}),
                        "agents": ("Agents", {"read": "See threads and runs", "manage": "Change and delete threads"}),
                        "secrets": ("Secrets", {"read": "Reveal secrets", "write": "Store and delete secrets"}),
                        "credentials": ("Credentials", {"read": "See which credentials are there"}),
                        "wirings": ("Wirings", {"read": "See deliveries of webhooks"}),
                        "virtualUsers": ("Virtual users", {"read": "See their runs", "run": "Start them"}),
                        "scenarios": ("Scenarios", {"read": "See their runs", "manage": "Delete their runs"}),
                    },
                )
            },
        ),
        "admin": (
            "All of the administration, and what others own",
            {
                "workflows": (
                    "Workflows",
                    {"read": "See runs and steps", "manage": "Operate on runs, answer approvals"},
                ),
                "agents": (
                    "Agents",
                    {"read": "See threads of everybody", "manage": "Answer approvals, delete threads"},
                ),
                "secrets": (
                    "Secrets",
                    {"read": "See names and keys", "write": "Set and delete secrets", "reveal": "Reveal values"},
                ),
                "credentials": (
                    "Credentials of users",
                    {"read": "See names and keys", "manage": "Set and delete credentials", "reveal": "Reveal values"},
                ),
                "channels": (
                    "Channels",
                    {"read": "See channels and sessions", "manage": "Close channels, end sessions"},
                ),
                "deployments": ("Deployments", {"read": "See deployments"}),
                "webhooks": ("Webhooks", {"read": "See deliveries", "manage": "Send deliveries again"}),
                "virtualUsers": ("Virtual users", {"read": "See their runs"}),
                "audit": ("The audit trail", {"read": "See the audit trail"}),
                "scopes": ("Scopes and roles", {"read": "See roles and grants", "manage": "Change roles and grants"}),
                "users": (
                    "Users",
                    {
                        "create": "Make users",
                        "list": "See users",
                        "remove": "Remove users",
                        "sessions": "End sessions of users",
                        "ban": "Ban users",
                        "password": "Set passwords of users",
                    },
                ),
            },
        ),
    }
)
