"""The pytest plugin in projects of its own, each a run of pytest in another process."""

from pathlib import Path
from textwrap import dedent

import pytest

pytest_plugins = ["pytester"]

SETTINGS = """
    SECRET_KEY = "tests"
    USE_TZ = True
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
    INSTALLED_APPS = ["pikku_storage.workflows"]
"""
WORKFLOWS = """
    from pikku_storage.workflows import function, workflow

    @function(retries=1, retry_delay="30s", queued=True)
    def send_mail(to):
        raise AssertionError("no mails in tests")

    @workflow
    def trial(flow, email):
        flow.sleep("trial", "30days")
        return flow.do("remind", send_mail, {"to": email})
"""
GOOD = """
    import pytest
    from pathlib import Path
    from workflows import trial

    @pytest.fixture
    def clock():
        return "the project's own"

    def test_the_reminder_comes_after_thirty_days(run_until_idle, fake_function, assert_history, clock, _pikku_clock):
        assert clock == "the project's own"
        send_mail = fake_function("send_mail", returns="sent")
        run = trial.start({"email": "ada@mail.example"})
        run_until_idle()
        _pikku_clock.advance("30days")
        assert run_until_idle() == []
        assert send_mail.calls == [{"to": "ada@mail.example"}]
        assert_history(run, Path("histories/trial.txt"))
        assert_history(run, Path("histories/trial.txt").read_text())

    @pytest.mark.django_db(transaction=True)
    def test_in_committed_transactions(run_until_idle):
        trial.start({"email": "ada@mail.example"})
        assert [wait.step_name for wait in run_until_idle()] == ["trial"]
"""
TEST_CASE = """
    from django.test import TestCase
    from pikku_storage.testing import driving, faking, frozen_clock
    from workflows import trial

    class TrialTests(TestCase):
        def setUp(self):
            self.clock = self.enterContext(frozen_clock())
            self.run_until_idle = self.enterContext(driving())
            self.fake_function = self.enterContext(faking())

        def test_the_reminder_comes_after_thirty_days(self):
            self.fake_function("send_mail", returns="sent")
            run = trial.start({"email": "ada@mail.example"})
            self.assertEqual(len(self.run_until_idle()), 1)
            self.clock.advance("30days")
            self.assertEqual(self.run_until_idle(), [])
            self.assertEqual(run.output, "sent")
"""
BAD = """
    import pytest
    from workflows import trial

    def test_with_runs(run_until_idle, fake_function):
        fake_function("send_mail", returns="sent")
        run = trial.start({"email": "ada@mail.example"})
        assert run_until_idle() == []

    def test_without_runs(run_until_idle):
        assert False

    def test_without_a_database(clock):
        assert clock.now() is None

    def test_without_our_fixtures(db):
        trial.start({"email": "ada@mail.example"})
        assert False
"""
FOREIGN = """
    import sys

    def test_it_is_left_alone():
        assert not {"django", "celery", "pikku_storage.db", "pikku_storage.workflows"} & set(sys.modules)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A Django project with a workflow, and no tests yet."""
    for variable in ("DJANGO_SETTINGS_MODULE", "PIKKU_TEST_DATABASE", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(variable, raising=False)
    pytester.makepyfile(project_settings=dedent(SETTINGS), workflows=dedent(WORKFLOWS))
    pytester.makeini("[pytest]\nDJANGO_SETTINGS_MODULE = project_settings\npythonpath = .\nfilterwarnings = error\n")
    return pytester


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """A run of pytest in another process, in the tests' order."""
    return pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider", *args)


def test_tests_by_fixtures_and_by_context_managers_pass(project: pytest.Pytester) -> None:
    project.makepyfile(test_good=dedent(GOOD), test_case=dedent(TEST_CASE))

    # Alone, so that no other test has the database made.
    first = run(project, "-k", "reminder", "test_good.py")
    first.assert_outcomes(failed=1, deselected=1)
    first.stdout.fnmatch_lines(["*There is no file *trial.txt. With --pikku-update-histories pytest writes it:"])

    run(project, "--pikku-update-histories").assert_outcomes(passed=3)
    written = Path(project.path, "histories", "trial.txt").read_text()
    assert written.splitlines()[:2] == ["trial: completed", '  input: {"email": "ada@mail.example"}']
    run(project).assert_outcomes(passed=3)


def test_a_failed_test_shows_what_its_runs_did(project: pytest.Pytester) -> None:
    project.makepyfile(test_bad=dedent(BAD))
    result = run(project)

    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(
        [
            "*<trial, step 'trial': sleeps; due after clock.advance(\"30d\")>*",
            "*- workflow runs -*",
            "trial: running",
            '  input: {"email": "ada@mail.example"}',
            "trial: scheduled",
            "  sleep: 30d",
            "  1. scheduled",
        ]
    )
    shown = result.stdout.str()
    assert shown.count("- workflow runs -") == 3
    assert "There are none." in shown
    assert "They could not be read: Database access not allowed" in shown


@pytest.mark.parametrize("options", [[], ["-p", "no:django"]], ids=["with pytest-django", "without"])
def test_a_project_without_django_does_not_notice(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
    pytester.makepyfile(test_foreign=dedent(FOREIGN if options else "def test_it_is_left_alone(): pass"))
    run(pytester, *options).assert_outcomes(passed=1)


def test_the_plugin_can_be_left_out(project: pytest.Pytester) -> None:
    project.makepyfile(test_case=dedent(TEST_CASE), test_fixture="def test_it(run_until_idle): pass")
    result = run(project, "-p", "no:pikku_storage")

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*fixture 'run_until_idle' not found*"])


def test_without_pytest_django_the_database_is_the_projects_affair(project: pytest.Pytester) -> None:
    project.makeconftest(
        dedent("""
        import django, os, pytest
        os.environ["DJANGO_SETTINGS_MODULE"] = "project_settings"
        django.setup()

        @pytest.fixture(autouse=True)
        def tables():
            from django.core.management import call_command
            call_command("migrate", verbosity=0)
        """)
    )
    project.makeini("[pytest]\npythonpath = .\n")
    project.makepyfile(
        test_it=dedent("""
        def test_it(run_until_idle):
            from workflows import trial
            trial.start({"email": "ada@mail.example"})
            assert len(run_until_idle()) == 1
        """)
    )
    run(project, "-p", "no:django").assert_outcomes(passed=1)
