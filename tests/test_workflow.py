"""The workflow of a public CI: it calls what the Makefile has, and may do no more than it must."""

import json
import re
import shlex
from pathlib import Path

import pytest

from asv_bench import dashboard, history

yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/benchmarks.yml").read_text())
JOBS = WORKFLOW["jobs"]
# YAML 1.1 reads the word as a truth value
EVENTS = WORKFLOW.get("on", WORKFLOW.get(True))


def steps():
    for name, job in JOBS.items():
        for step in job["steps"]:
            yield name, step


def calls():
    """Yield each call of make: the job, the target, and what is set for it."""
    for name, step in steps():
        for line in step.get("run", "").splitlines():
            words = shlex.split(line)
            if words and words[0] == "make":
                _, target, *settings = words
                yield name, target, dict(word.split("=", 1) for word in settings)


def test_jobs_call_what_they_are_for():
    assert [(job, target) for job, target, _ in calls()] == [
        ("budget", "bench"),
        ("compare", "bench-compare"),
        ("record", "record"),
        ("publish", "dashboard"),
    ]


@pytest.mark.parametrize(("job", "target", "settings"), list(calls()))
def test_makefile_has_the_target_and_reads_what_is_set(job, target, settings):
    rule = re.search(rf"^{re.escape(target)}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert rule is not None
    for name in settings:
        assert f"$({name})" in rule[1]


def test_pull_requests_are_compared_with_their_base():
    (settings,) = [settings for job, _, settings in calls() if job == "compare"]
    (environment,) = [step["env"] for _, step in steps() if "bench-compare" in step.get("run", "")]
    assert settings == {"BASE": "$BASE"}
    assert environment == {"BASE": "${{ github.event.pull_request.base.sha }}"}


def test_jobs_run_for_their_event_alone():
    assert EVENTS.keys() == {"pull_request", "push"}
    events = {name: job.get("if", "") for name, job in JOBS.items() if "needs" not in job}
    assert events == {
        "budget": "github.event_name == 'pull_request'",
        "compare": "github.event_name == 'pull_request'",
        "record": "github.event_name == 'push'",
    }
    assert JOBS["publish"]["needs"] == "record"


def test_recorded_result_starts_no_run_of_its_own():
    kept = history.KEPT.relative_to(ROOT).as_posix()
    assert EVENTS["push"] == {"branches": ["main"], "paths-ignore": [f"{kept}/**"]}
    (recording,) = [step["run"] for _, step in steps() if "git push" in step.get("run", "")]
    assert f"git add {kept}\n" in recording


def test_nothing_may_be_written_but_what_a_job_is_for():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    granted = {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job}
    assert granted == {
        "record": {"contents": "write"},
        "publish": {"contents": "read", "pages": "write", "id-token": "write"},
    }


def test_actions_are_of_one_major_version():
    used = [step["uses"] for _, step in steps() if "uses" in step]
    assert used
    for action in used:
        assert re.fullmatch(r"actions/[a-z-]+@v\d+", action), action
    assert len(set(used)) == len({action.partition("@")[0] for action in used})


def test_every_checkout_has_the_history_and_only_recording_the_right_to_push():
    for name, step in steps():
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["fetch-depth"] == 0
            assert step["with"].get("persist-credentials", True) is (name == "record")


def test_nothing_of_an_event_is_pasted_into_a_command():
    for _, step in steps():
        assert "${{" not in step.get("run", "")


def test_results_are_of_a_machine_that_is_known():
    (settings,) = [settings for job, _, settings in calls() if job == "record"]
    facts = json.loads((history.KEPT / settings["MACHINE"] / "machine.json").read_text())
    assert facts["machine"] == settings["MACHINE"]


def test_what_is_published_is_where_the_dashboard_is_made():
    (artifact,) = [step for _, step in steps() if "upload-pages" in step.get("uses", "")]
    assert artifact["with"]["path"] == dashboard.HTML.relative_to(ROOT).as_posix()
