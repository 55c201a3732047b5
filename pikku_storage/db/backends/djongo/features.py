"""What can be done, so that Django asks for nothing else."""

from __future__ import annotations

from djongo import features


class DatabaseFeatures(features.DatabaseFeatures):
    """See the module."""

    allows_group_by_select_index = False
    supports_aggregate_filter_clause = False
    supports_column_check_constraints = False
    supports_expression_indexes = False
    supports_foreign_keys = False
    supports_ignore_conflicts = False
    supports_index_column_ordering = True
    supports_json_field_contains = False
    supports_order_by_nulls_modifier = False
    supports_over_clause = False
    supports_partial_indexes = False
    supports_select_difference = False
    supports_select_intersection = False
    supports_select_union = False
    supports_table_check_constraints = False
    test_db_allows_multiple_connections = True
