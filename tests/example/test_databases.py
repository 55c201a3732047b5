"""DATABASE_URL."""

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from example_project.databases import database_from_url


def test_sqlite_is_set_up_for_several_processes(tmp_path: Path) -> None:
    config = database_from_url("sqlite:///data/shop.sqlite3", base_dir=tmp_path)

    assert config["NAME"] == str(tmp_path / "data" / "shop.sqlite3")
    assert (tmp_path / "data").is_dir()
    assert config["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in config["OPTIONS"]["init_command"]


def test_an_absolute_path_and_memory_are_taken_as_they_are(tmp_path: Path) -> None:
    assert database_from_url(f"sqlite:///{tmp_path}/a.db", base_dir=Path("/elsewhere"))["NAME"] == f"{tmp_path}/a.db"
    assert database_from_url("sqlite://:memory:", base_dir=tmp_path)["NAME"] == ":memory:"


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_postgresql(scheme: str, tmp_path: Path) -> None:
    config = database_from_url(f"{scheme}://me:p%40ss@db.example:5433/shop", base_dir=tmp_path)

    assert config["ENGINE"] == "django.db.backends.postgresql"
    assert (config["USER"], config["PASSWORD"], config["HOST"], config["PORT"], config["NAME"]) == (
        ("me", "p@ss", "db.example", 5433, "shop")
    )


def test_postgresql_keeps_connections_and_prepares_statements(tmp_path: Path) -> None:
    config = database_from_url("postgres://db.example/shop", base_dir=tmp_path)

    assert (config["CONN_MAX_AGE"], config["CONN_HEALTH_CHECKS"]) == (60, True)
    assert config["OPTIONS"] == {"server_side_binding": True, "prepare_threshold": 5}


def test_mariadb(tmp_path: Path) -> None:
    config = database_from_url("mysql://me:p%40ss@db.example:3307/shop", base_dir=tmp_path)

    assert config["ENGINE"] == "django.db.backends.mysql"
    assert (config["USER"], config["PASSWORD"], config["HOST"], config["PORT"], config["NAME"]) == (
        ("me", "p@ss", "db.example", 3307, "shop")
    )
    assert (config["CONN_MAX_AGE"], config["CONN_HEALTH_CHECKS"]) == (60, True)
    assert config["OPTIONS"] == {"charset": "utf8mb4", "isolation_level": "read committed"}


def test_the_query_of_a_mariadb_url_overrides_too(tmp_path: Path) -> None:
    url = "mysql://db.example/shop?conn_max_age=0&charset=latin1&unix_socket=/run/mysqld.sock"
    config = database_from_url(url, base_dir=tmp_path)

    assert config["CONN_MAX_AGE"] == 0
    assert config["OPTIONS"] == {
        "charset": "latin1",
        "isolation_level": "read committed",
        "unix_socket": "/run/mysqld.sock",
    }


def test_the_query_of_the_url_overrides_what_is_set(tmp_path: Path) -> None:
    query = "conn_max_age=0&conn_health_checks=false&prepare_threshold=none&disable_server_side_cursors=true"
    config = database_from_url(f"postgres://none@db.example/shop?{query}&require_auth=none", base_dir=tmp_path)

    assert (config["CONN_MAX_AGE"], config["CONN_HEALTH_CHECKS"]) == (0, False)
    assert config["DISABLE_SERVER_SIDE_CURSORS"] is True
    assert config["OPTIONS"] == {"server_side_binding": True, "prepare_threshold": None, "require_auth": "none"}
    assert config["USER"] == "none", "a word only where a word is meant"


def test_numbers_and_switches_of_the_query_have_their_types(tmp_path: Path) -> None:
    config = database_from_url(
        "postgres://db.example/shop?prepare_threshold=2&server_side_binding=FALSE", base_dir=tmp_path
    )

    assert config["OPTIONS"] == {"server_side_binding": False, "prepare_threshold": 2}


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("oracle://me:hunter2@db.example/shop", "has the scheme 'oracle'"),
        ("me:hunter2@db.example/shop", "has no scheme"),
        ("", "has no scheme"),
        ("postgres://me:hunter2@db.example:port/shop", "cannot be parsed"),
    ],
)
def test_a_bad_url_is_a_clear_error_that_keeps_the_password(url: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ImproperlyConfigured, match=reason) as caught:
        database_from_url(url, base_dir=tmp_path)

    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "postgres" in str(caught.value) or "scheme://" in str(caught.value)


def test_djongo_is_told_what_mongodb_s_driver_reads(tmp_path: Path) -> None:
    config = database_from_url("djongo://me:djongo@one,two/shop?replicaSet=rs0", base_dir=tmp_path)

    assert config == {
        "ENGINE": "pikku_storage.db.backends.djongo",
        "HOST": "mongodb://me:djongo@one,two/shop?replicaSet=rs0",
        "NAME": "shop",
    }
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL names no database"):
        database_from_url("djongo://one", base_dir=tmp_path)
