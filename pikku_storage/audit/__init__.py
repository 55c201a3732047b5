"""The audit trail: who did what, and which tables that touched. Importable before apps are ready."""

from pikku_storage.audit.invocations import Audit, audit_context, audited, current_audit

__all__ = ["Audit", "audit_context", "audited", "current_audit"]
