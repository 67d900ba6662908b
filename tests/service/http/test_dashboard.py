"""The dashboard in a real browser, on a real server, while records arrive."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import foldaway as fa
from browser import Scheme, Watched, browser, page_at, serious_findings, sideways_scroll
from clustered import devices_of, federated, report
from foldaway.effects.numbers import relative_text
from foldaway.effects.percent import in_percent
from foldaway.evidence.verifying import verify
from foldaway.federated.messages import MEDIA_TYPE, Enrolment, encoded
from served import Served
from servers import Nursery
from sizes import mostly_slow
from trials import folded, make_trial

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browser"]

FILES = Path(__file__).parents[3] / "src" / "foldaway" / "service" / "http" / "dashboard"
PATIENCE = 30_000  # milliseconds; the machine may have much else to do
TOKEN = "foldaway token"

# A tab in the background; for a test, since the browser without windows shows every tab.
HIDE = """() => {
    const state = {get: () => window.seen ?? 'hidden', configurable: true};
    Object.defineProperty(document, 'visibilityState', state);
    document.dispatchEvent(new Event('visibilitychange'));
}"""

# Text that would be a script, markup, a style or a formula if anybody took it for more than text.
HOSTILE = "<img src=x onerror=alert(1)>"
HOSTILE_ARM = "\"'></script><script>alert(2)</script>"
HOSTILE_COLUMN = "<svg/onload=alert(3)>\u202e{{7*7}}&amp;=1+1"


@pytest.fixture(scope="module")
def server(served_from: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("dashboard"), served_from) as server:
        yield server


class Arriving:
    """A trial whose records come when they are told to."""

    def __init__(self, server: Served, name: str, **settings: Any) -> None:
        plan = {"arms": {"control": 0.5, "treatment": 0.5}, "outcomes": ["revenue"], "privacy": {"cohort": 50}}
        self.plan = {"arm": "variant", **plan, **settings}
        made = server.create(name, **self.plan)
        self._server, self.name, self.read, self._ingest = server, name, made["read_token"], made["ingest_token"]
        self._rng = random.Random(name)

    def send(self, count: int, *, lift: float = 2.0, only: int | None = None) -> None:
        """Records of every arm in turn, or of one arm alone; those of later arms are higher by `lift` each."""
        arms = list(self.plan["arms"])
        records = []
        for i in range(count):
            arm = i % len(arms) if only is None else only
            noise = {outcome: self._rng.gauss(10 + lift * arm, 3) for outcome in self.plan["outcomes"]}
            covariates = {name: self._rng.gauss(0, 1) for name in self.plan.get("covariates", [])}
            unit = {self.plan["unit"]: f"{self._rng.random()}"} if "unit" in self.plan else {}
            segments = {name: self._rng.choice("xy") for name in self.plan.get("segments", [])}
            records.append({self.plan["arm"]: arms[arm], **unit, **noise, **covariates, **segments})
        answer = self._server.ask("POST", f"/v1/trials/{self.name}/records", self._ingest, json=records)
        assert answer.status_code in (200, 202), answer.text  # 202 while they wait for their cohort
        assert answer.json()["folded"] == count

    def end(self) -> None:
        assert self._server.ask("POST", f"/v1/trials/{self.name}/end").status_code == 200

    @property
    def points(self) -> int:
        answer = self._server.ask("GET", f"/v1/trials/{self.name}/history", self.read)
        return len(answer.json()["points"])


@contextmanager
def looking(
    browser: Browser, server: Served, token: str, path: str = "", *, width: int = 1200, scheme: Scheme = "light"
) -> Iterator[Watched]:
    """A page with the token entered as anybody would."""
    with page_at(browser, f"{server.url}/{path}", width=width, scheme=scheme) as watched:
        watched.page.set_default_timeout(PATIENCE)
        enter(watched.page, token)
        yield watched


def enter(page: Page, token: str) -> None:
    page.get_by_label("Access token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def until(page: Page, is_so: Callable[[], Any]) -> None:
    """Wait until something is so, with the browser at work meanwhile."""
    waited = 0
    while not is_so():
        assert waited < PATIENCE, page.locator("main").inner_text()
        page.wait_for_timeout(50)
        waited += 50


def cells(page: Page, rows: str) -> list[list[str]]:
    """The cells of a table's rows, each with its parts apart.

    They are read in one step: between two, the page may draw the table again.
    """
    parts = "cell => [...cell.childNodes].map(part => part.textContent).join(' ')"
    table: list[list[str]] = page.locator(rows).evaluate_all(f"rows => rows.map(row => [...row.cells].map({parts}))")
    return table


def text(page: Page, selector: str) -> str:
    return page.locator(selector).inner_text()


def number(words: str) -> float:
    return float(words.replace("\u2212", "-").replace("+", "").replace(",", ""))


def width_of(page: Page) -> float:
    lower, upper = text(page, "#interval").split(" to ")
    return number(upper) - number(lower)


# From a plan to a trial that has ended.


def test_an_admin_creates_reads_and_ends_a_trial(browser: Browser, server: Served, tmp_path: Path) -> None:
    plan = fa.Plan(name="from-the-page", arm="variant", arms={"control": 0.5, "treatment": 0.5}, outcomes=["revenue"])
    plan.save(tmp_path / "plan.toml")
    with looking(browser, server, server.admin) as watched:
        page = watched.page
        page.get_by_text("Create a trial").click()
        page.get_by_label("Plan file").set_input_files(tmp_path / "plan.toml")
        page.get_by_role("button", name="Register").click()
        page.get_by_text("they are not shown again").wait_for()
        ingest = next(code for code in page.locator(".create code").all_inner_texts() if code.startswith("fa_"))
        page.locator(".trials a", has_text="from-the-page").wait_for()
        page.get_by_label("Plan file").set_input_files(tmp_path / "plan.toml")
        page.get_by_role("button", name="Register").click()
        page.get_by_text("This plan is registered already: from-the-page. Here are two more tokens").wait_for()
        rng = random.Random(1)
        lifts = {"control": 1.0, "treatment": 3.0}
        records = [{"variant": arm, "revenue": rng.gauss(lifts[arm], 1)} for _ in range(250) for arm in plan.arms]
        assert server.ask("POST", "/v1/trials/from-the-page/records", ingest, json=records).status_code == 200
        until(page, lambda: "higher" in page.locator(".trials tr", has_text="from-the-page").inner_text())
        assert "fits" in page.locator(".trials tr", has_text="from-the-page").inner_text()
        page.locator(".trials a", has_text="from-the-page").click()
        with page.expect_download() as download:
            page.get_by_role("button", name="Download the report").click()
        report = download.value.path().read_text("utf-8")
        assert "from-the-page" in report
        assert "At a glance" in report
        page.get_by_text("Word for word").click()
        assert '"outcomes"' in page.locator("pre.plan").inner_text()
        page.get_by_text("End this trial").click()
        assert page.get_by_role("button", name="End the trial").is_disabled()
        page.get_by_label("cannot be undone").check()
        page.get_by_role("button", name="End the trial").click()
        page.get_by_text("This trial has ended.").wait_for()
        assert not page.get_by_text("End this trial").is_visible()
        with page.expect_download() as download:
            page.get_by_role("button", name="Download the certificate").click()
        assert verify(download.value.path().read_bytes()).good
        watched.require_quiet()


def test_a_plan_that_is_refused_says_why_and_a_reader_is_offered_neither(
    browser: Browser, server: Served, tmp_path: Path
) -> None:
    (tmp_path / "bad.toml").write_text("name = 'bad'\n")
    with looking(browser, server, server.admin) as watched:
        page = watched.page
        page.get_by_text("Create a trial").click()
        page.get_by_label("Plan file").set_input_files(tmp_path / "bad.toml")
        page.get_by_role("button", name="Register").click()
        until(page, lambda: "arm" in text(page, ".create .fault"))
    reader = Arriving(server, "for-readers")
    reader.send(200)
    with looking(browser, server, reader.read) as watched:
        page = watched.page
        page.get_by_role("button", name="Download the report").wait_for()
        assert not page.get_by_text("End this trial").is_visible()


# Records arriving.


@pytest.mark.slow
def test_the_estimate_moves_and_the_interval_narrows_as_records_arrive(browser: Browser, server: Served) -> None:
    trial = Arriving(server, "moving")
    with looking(browser, server, trial.read) as watched:
        page = watched.page
        page.get_by_text("Effects need 50 records, and 10 records in every arm").wait_for()
        assert page.url.endswith("#/trials/moving")  # the only one that this token reads
        assert text(page, "#folded") == "0"
        trial.send(20)
        page.get_by_text("New effects are shown once at least 50").wait_for()
        assert page.locator("#estimate").count() == 0
        trial.send(30)
        page.locator("#estimate").wait_for()
        first, wide = number(text(page, "#estimate")), width_of(page)
        until(page, lambda: trial.points == 1)
        trial.send(150, lift=8.0)
        until(page, lambda: text(page, "#folded") == "200" and number(text(page, "#estimate")) > first + 1)
        second = width_of(page)
        until(page, lambda: trial.points == 2)
        trial.send(800, lift=8.0)
        until(page, lambda: text(page, "#folded") == "1,000" and width_of(page) < second < wide)
        until(page, lambda: trial.points == 3)
        until(page, lambda: page.locator(".chart").get_attribute("aria-valuemax") == "2")
        assert text(page, "#held") == "0"
        assert text(page, "#forgotten") in ("within the hour", "1 hour ago")
        assert "raises revenue by" in text(page, "#verdict")
        ahead = r"With 2,000 records, in about \d+ days? at the present rate, an effect of [\d.]+ on revenue would show"
        until(page, lambda: re.match(ahead, text(page, "#outlook")) is not None)
        answer = server.ask("GET", "/v1/trials/moving/effects", trial.read).json()["effects"]
        (shown,) = [r for r in answer["effects"] if (r["estimator"], r["se_kind"]) == ("difference", "welch")]
        assert number(text(page, "#estimate")) == pytest.approx(shown["estimate"], abs=0.01)
        # The chart: a line over three points, in the band between the intervals' ends.
        path = page.locator("path.line").get_attribute("d") or ""
        assert len(re.findall("[ML]", path)) == 3
        page.get_by_text("The same as a table").click()
        rows = page.get_by_role("region", name="The course of the effect").locator("tbody tr")
        until(page, lambda: [row.split()[0] for row in rows.all_inner_texts()] == ["1,000", "200", "50"])
        watched.require_quiet()


def test_a_trial_that_has_ended_shows_its_final_effects_and_fingerprint(browser: Browser, server: Served) -> None:
    trial = Arriving(server, "ending")
    trial.send(210)
    with looking(browser, server, server.admin, "#/trials/ending") as watched:
        page = watched.page
        page.locator("#estimate").wait_for()
        assert page.get_by_text("This trial has ended.").count() == 0
        trial.send(5)
        trial.end()
        page.get_by_text("This trial has ended.").wait_for()
        fingerprint = server.ask("GET", "/v1/trials/ending").json()["fingerprint"]
        assert fingerprint in text(page, ".has-ended")
        assert "final" in text(page, ".has-ended")
        until(page, lambda: text(page, "#outlook") == "")
        assert page.locator("#estimate").is_visible()
        assert (
            page.get_by_text("left out at the end: no cohort").count() == 1
        )  # five are no cohort after the last answer
        assert page.locator("#cohort").is_hidden()
        assert serious_findings(page) == []
        watched.require_quiet()


def test_page_list_and_report_give_one_verdict(browser: Browser, server: Served) -> None:
    """That of the command line's scorecard, also where it holds for one look alone."""
    trial = Arriving(server, "once")
    trial.send(400, lift=1.2)
    trial.end()
    (said,) = server.ask("GET", "/v1/trials/once/effects", trial.read).json()["effects"]["verdicts"]
    assert said["words"] == "higher, one look"
    with looking(browser, server, server.admin) as watched:
        page = watched.page
        line = page.locator(".trials tr", has_text="once")
        until(page, lambda: "higher, one look: revenue" in line.inner_text())
        line.get_by_role("link").click()
        page.locator(".glance tbody td").first.wait_for()
        assert page.locator(".glance tbody td").first.inner_text() == "higher, one look"
        assert text(page, "#verdict").startswith("treatment raises revenue by")
        assert text(page, "#verdict").endswith("(one look).")
        with page.expect_download() as download:
            page.get_by_role("button", name="Download the report").click()
        report = download.value.path().read_text("utf-8")
        assert report.count("Higher, one look") == 2
        watched.require_quiet()


def test_a_sample_ratio_that_does_not_fit_is_said_first(browser: Browser, server: Served) -> None:
    trial = Arriving(server, "skewed")
    trial.send(300)
    with looking(browser, server, trial.read) as watched:
        page = watched.page
        page.get_by_text("The records per arm fit the plan").wait_for()
        assert page.locator(".alarm").count() == 0
        trial.send(100, only=0)
        page.locator(".alarm").wait_for()
        assert "Find out why before you trust any effect" in text(page, ".alarm")
        assert text(page, "#verdict") == "Do not trust the effect of treatment on revenue yet."
        assert page.get_by_text("The records per arm do not fit the plan (p\u00a0< 0.001).").is_visible()
        alarm, effect = (page.locator(part).bounding_box() for part in (".alarm", "#estimate"))
        assert alarm is not None
        assert effect is not None
        assert alarm["y"] + alarm["height"] < effect["y"]
        watched.require_quiet()


def test_records_of_units_that_do_not_fit_are_a_warning_and_no_veto(browser: Browser, server: Served) -> None:
    trial = Arriving(server, "crowded", unit="customer", moments={})
    trial.send(200)
    trial.send(200, only=0)
    with looking(browser, server, trial.read) as watched:
        page = watched.page
        page.get_by_text("The records per arm do not fit the plan (p\u00a0< 0.001).").wait_for()
        page.get_by_text(
            "New effects are shown once at least 50 more units have come and the trial has grown by 5 %."
        ).wait_for()
        assert "or an arm changes how many records a unit has" in text(page, ".alarm")
        assert not text(page, "#verdict").startswith("Do not trust")
        assert page.locator(".doubtful").count() == 0
        assert serious_findings(page) == []
        watched.require_quiet()


def test_arms_without_records_have_no_share(browser: Browser, server: Served) -> None:
    with page_at(browser, server.url, width=1200, scheme="light") as watched:
        told = watched.page.evaluate(
            """async () => {
                const { arms } = await import("/dashboard/cards.js");
                const none = { a: 0, b: 0 };
                const ratio = { counted: "records", observed: none, expected: none, statistic: 0, p_value: 1 };
                const list = arms({ sample_ratio: ratio }, { arms: { a: 0.5, b: 0.5 } })[1];
                return [...list.querySelectorAll(".share i")].map((bar) => bar.style.width);
            }"""
        )
        assert told == ["0%", "0%"]
        watched.require_quiet()


def test_what_cannot_be_told_is_said_with_its_reason(browser: Browser, server: Served) -> None:
    (plain, *_) = folded(*make_trial(1, covariates=0)).effects()
    waiting = msgspec.structs.replace(
        plain, anytime_ci_lower=None, anytime_ci_upper=None, anytime_why="It waits.", relative_why=None
    )
    without = msgspec.structs.replace(
        waiting,
        reliable=False,
        why="So few.",
        anytime_why="So few.",
        ci_lower=None,
        ci_upper=None,
        relative_why="So few.",
    )
    nothing = msgspec.structs.replace(without, estimate=None, control_level=None)
    with page_at(browser, server.url, width=1200, scheme="light") as watched:
        told = watched.page.evaluate(
            """async (rows) => {
                const { explained, heard, reasons, verdict } = await import("/dashboard/words.js");
                const { headline } = await import("/dashboard/choice.js");
                const text = (parts) => parts.map((part) => part.textContent ?? part).join("");
                const all = JSON.parse(rows);
                const other = { ...all[0], se_kind: "CR1", reliable: false };
                const open = "not decided yet";
                const said = { margin: null, verdict: open, anytime: open, words: open };
                return {
                    verdicts: all.map((row) => text(verdict(row, { ...said, label: row.outcome }))),
                    explained: all.map((row) => text(explained(row, said, 0.95))),
                    heard: all.map((row) => heard(row, 100)),
                    reasons: reasons(all),
                    leads: [[all[0], other], [other, all[0]]].map((pair) => headline(pair)[0].se_kind),
                };
            }""",
            msgspec.json.encode([waiting, without, nothing]).decode(),
        )
        watched.require_quiet()
    assert told["verdicts"] == [
        "No effect of arm1 on y0 is established",
        "No error can be given for arm1 on y0",
        "No effect of arm1 on y0 can be shown yet",
    ]
    assert [said.split(" The level")[0].strip() for said in told["explained"][1:]] == ["So few.", "So few."]
    assert re.match(
        r"It waits\. With 95 % confidence the effect lies .*, if you look only once\.", told["explained"][0]
    )
    assert not any("null" in said or "NaN" in said for said in told["heard"] + told["explained"])
    assert told["reasons"] == ["It waits.", "So few."]
    assert told["leads"] == [plain.se_kind] * 2


def test_the_share_of_the_control_is_shown_by_the_rule_of_the_reports(browser: Browser, server: Served) -> None:
    (plain, *_) = folded(*make_trial(1, covariates=0)).effects()
    rows = [
        msgspec.structs.replace(plain, control_level=level, relative=share, relative_std_error=error)
        for level in (-0.05, 0.0, 3.0, None)
        for share in (-0.896, 0.1, 6.0, None)
        for error in (0.01, 0.49, 0.5, 0.61, 2.9, 3.1, None)
    ]
    with page_at(browser, server.url, width=1200, scheme="light") as watched:
        told = watched.page.evaluate(
            """async (rows) => {
                const { relative } = await import("/dashboard/words.js");
                return JSON.parse(rows).map((row) => relative(row) !== "–");
            }""",
            msgspec.json.encode(rows).decode(),
        )
        assert told == [relative_text(row) != "–" for row in rows]
        assert 0 < sum(told) < len(rows)
        watched.require_quiet()


def test_shares_are_in_per_cent_as_in_the_reports(browser: Browser, server: Served) -> None:
    share = {"kind": "share", "column": "y", "above": 2, "better": "lower", "margin": 0.02, "name": "large"}
    plan = fa.Plan(name="t", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y", share], segments=["c"])
    trial = fa.Trial(plan)
    trial.fold({"g": ["a", "b"] * 500, "y": [i % 7 for i in range(1_000)], "c": ["p", "q", "q", "p"] * 250})
    effects = trial.effects()
    with page_at(browser, server.url, width=1200, scheme="light") as watched:
        told = watched.page.evaluate(
            """async (found) => {
                const { inPercent } = await import("/dashboard/percent.js");
                return inPercent(JSON.parse(found));
            }""",
            effects.to_json(),
        )
        watched.require_quiet()
    read = in_percent(effects)
    said = zip(read.verdicts(), told["verdicts"], strict=True)
    for ours, theirs in [*zip(read, told["effects"], strict=True), *said]:
        for name in ("estimate", "control_level", "ci_upper", "anytime_ci_upper"):
            assert theirs[name] == pytest.approx(getattr(ours, name)), name
    for ours, theirs in zip(read.segments, told["segments"], strict=True):
        assert [row["estimate"] for row in theirs["effects"]] == [pytest.approx(row.estimate) for row in ours.effects]
    assert [said["measure"] for said in told["verdicts"]] == ["", "%"]
    assert [said["margin"] for said in told["verdicts"]] == [None, 2.0]


def test_every_outcome_is_there_at_a_glance_with_its_verdict(browser: Browser, server: Served) -> None:
    """Also those with one-sided questions, whose intervals have one end; and quantiles, which have neither an adjusted
    estimate nor an any-time interval."""
    outcomes = [
        {"column": "revenue", "better": "higher", "label": "Revenue", "measure": "€"},
        {"column": "harm", "better": "lower", "margin": 5.0},
        {"column": "same", "question": "alike", "margin": 5.0},
        {"kind": "quantile", "column": "revenue", "quantiles": [0.95], "bounds": [1, 1000]},
    ]
    trial = Arriving(server, "glance", outcomes=["revenue", "harm", "same"], covariates=["before"])
    trial.name = "asked"
    made = server.create("asked", **{**trial.plan, "outcomes": outcomes})
    trial.read, trial._ingest = made["read_token"], made["ingest_token"]
    trial.send(400)
    with looking(browser, server, trial.read) as watched:
        page = watched.page
        page.locator(".glance tbody tr").first.wait_for()
        said = server.ask("GET", "/v1/trials/asked/effects", trial.read).json()["effects"]["verdicts"]
        glance = cells(page, ".glance tbody tr")
        assert [row[:2] for row in glance] == [
            ["Revenue €", "better"],
            ["harm", "worse within margin"],
            ["same", "alike"],
            ["revenue p95", "higher, one look"],
        ]
        assert [each["words"] for each in said] == [row[1] for row in glance]
        assert [row[3][0] for row in glance[1:2]] == ["≤"]
        assert [row[3].split()[-2:] for row in glance] == [["any", "time"]] * 3 + [["one", "look"]]
        assert page.locator(".glance thead th").nth(3).inner_text() == "95 % interval"
        box = page.get_by_role("region", name="All results at a glance")
        for width in (390, 1280):  # every line, without scrolling
            page.set_viewport_size({"width": width, "height": 900})
            assert box.evaluate(
                "each => [each.scrollHeight - each.clientHeight, each.scrollWidth - each.clientWidth]"
            ) == [0, 0]
        page.set_viewport_size({"width": 1200, "height": 900})
        assert text(page, "#verdict").startswith("treatment raises Revenue by ")
        assert text(page, "#verdict").endswith("\u00a0€, which is better.")
        assert "Revenue, harm, same, revenue p95" in page.get_by_label("The plan", exact=True).inner_text()
        assert page.get_by_text("so their sum may differ from the records folded").is_visible()
        page.get_by_role("button", name="harm").click()
        until(page, lambda: text(page, "#verdict") == "treatment makes harm worse, by less than 5.")
        assert page.locator(".keys").all_inner_texts() == ["No effect\nThe margin: 5"]
        assert text(page, "#interval").startswith("≤")
        assert page.get_by_label("Estimator", exact=True).input_value() == "adjusted"
        page.get_by_role("button", name="revenue p95").click()
        until(page, lambda: text(page, "#verdict").startswith("treatment raises revenue p95 by"))
        assert text(page, "#interval") in glance[3][3]
        assert "if you look only once" in text(page, ".explained")
        assert not any("means" in words or "band" in words for words in page.locator(".how, .legend").all_inner_texts())
        reaching = page.locator(".forest .look").evaluate_all(
            "lines => lines.flatMap(line => [line.x1, line.x2]).map(end => end.baseVal.valueInSpecifiedUnits)"
        )
        assert all(0 <= end <= 100 for end in reaching)
        page.get_by_label("Outcome").select_option("harm")
        until(page, lambda: page.get_by_label("Estimator", exact=True).input_value() == "adjusted")
        assert serious_findings(page) == []
        assert sideways_scroll(page) == 0
        watched.require_quiet()


def test_outcome_arm_and_estimator_are_chosen(browser: Browser, server: Served) -> None:
    arms = {"control": 0.25, "gold": 0.25, "silver": 0.25, "bronze": 0.25}
    parts = {"outcomes": ["revenue", "visits"], "covariates": ["before"], "segments": ["country"]}
    trial = Arriving(server, "many", arms=arms, **parts)
    trial.send(400)
    told = server.ask("GET", "/v1/trials/many/effects", trial.read).json()["effects"]
    answer = told["effects"]
    with looking(browser, server, trial.read) as watched:
        page = watched.page
        page.locator("#estimate").wait_for()
        assert page.get_by_label("Estimator", exact=True).input_value() == "adjusted"
        page.get_by_label("Outcome").select_option("visits")
        page.get_by_label("Arm", exact=True).select_option("bronze")
        page.get_by_label("Estimator", exact=True).select_option("difference")
        wanted = {"outcome": "visits", "arm": "bronze", "estimator": "difference", "se_kind": "welch"}
        (row,) = [row for row in answer if all(row[field] == value for field, value in wanted.items())]
        until(page, lambda: number(text(page, "#estimate")) == pytest.approx(row["estimate"], abs=0.05))
        assert [row[0].split()[0] for row in cells(page, ".forest tbody tr")[:3]] == ["gold", "silver", "bronze"]
        (within,) = [part for part in told["segments"] if (part["outcome"], part["arm"]) == ("visits", "bronze")]
        card = page.get_by_label("Effects by segment")
        assert within["summary"] in (card.text_content() or "")
        lines = cells(page, "[aria-label='Effects by segment'] .forest tbody tr")
        for level, (name, _, effect) in zip(within["effects"], lines, strict=True):
            assert name.split() == [level["segment"], f"{level['n']}", "records"]
            assert number(effect.split()[0]) == pytest.approx(level["estimate"], abs=0.05)
        card.get_by_text("All numbers").click()
        table = page.get_by_role("table", name="All effects on visits by country")
        assert table.locator("thead th").all_inner_texts() == [
            "country",
            "Effect",
            "Interval, one look",
            "p",
            "Adjusted p",
        ]
        until(page, lambda: page.locator(".chart").get_attribute("aria-valuenow") is not None)
        watched.require_quiet()


def test_federated_progress_is_shown_where_the_status_has_it(browser: Browser, server: Served) -> None:
    trial = Arriving(server, "sites")
    progress = {
        "mode": "one-message",
        "stage": "replying",
        "enrolled": {"control": 40, HOSTILE_ARM: 38},
        "reported": {"control": 10, HOSTILE_ARM: 38},
        "deadline": 1_900_000_000,
    }
    with page_at(browser, server.url) as watched:
        page = watched.page
        page.set_default_timeout(PATIENCE)

        def with_progress(route: Any) -> None:
            answer = route.fetch()
            route.fulfill(response=answer, json={**answer.json(), "federated": progress})

        page.route(re.compile(r"/v1/trials/sites$"), with_progress)
        enter(page, trial.read)
        page.get_by_role("heading", name="Federated progress").wait_for()
        card = page.get_by_label("Federated progress")
        assert "10 of 40" in card.inner_text()
        assert "38 of 38" in card.inner_text()
        assert HOSTILE_ARM in card.inner_text()
        assert "replying" in card.inner_text()
        assert "2030" in card.inner_text()
        assert serious_findings(page) == []


@pytest.mark.parametrize(("mode", "where"), [("delta", "on devices"), ("one-message", "at sites and on devices")])
def test_a_trial_on_devices_shows_its_effect_and_says_that_there_is_no_course(
    browser: Browser, server: Served, mode: str, where: str
) -> None:
    given, rows = make_trial(5, n=160, units=True, covariates=0)
    of_sites = {"unit": given.unit, "records_per_unit": "together"} if "sites" in where else {}
    plan = federated(given, mode, name=mode, cohort=5, smallest_cell=2, **of_sites)
    content: dict[str, Any] = {"content": plan.to_json(), "headers": {"Content-Type": "application/json"}}
    tokens = server.ask("POST", "/v1/trials", **content).json()

    def post(kind: str, body: bytes) -> None:
        headers = {"Content-Type": MEDIA_TYPE}
        sent = server.ask("POST", f"/v1/trials/{mode}/{kind}", tokens["ingest_token"], content=body, headers=headers)
        assert sent.status_code == 200, sent.text

    with looking(browser, server, tokens["read_token"]) as watched:
        page = watched.page
        page.get_by_text("Effects need 5 reports, and 2 reports in every arm").wait_for()
        assert page.locator("#no-course").is_hidden()
        for kept in devices_of(plan, rows):
            message = report(plan, kept)
            post("enrolments", encoded(Enrolment(message.number, kept.arm)))
            post("reports", encoded(message))
        page.locator("#estimate").wait_for()
        assert f"whose records stay {where}: this is the effect as it stands now" in text(page, "#no-course")
        assert page.get_by_text(f"Records stay {where}, and none comes here.").is_visible()
        reported = "Units at sites, and devices, that" if "sites" in where else "Devices that"
        assert f"{reported} have reported" in page.get_by_label("Federated progress").inner_text()
        assert page.locator(".chart").is_hidden()
        assert page.get_by_text("5 messages", exact=True).is_visible()
        assert serious_findings(page) == []
        watched.require_quiet()


# Who may look, and what is said when nothing can be shown.


def test_a_wrong_token_is_refused_and_kept_nowhere(browser: Browser, server: Served) -> None:
    trial = Arriving(server, "locked")
    wrong = trial.read[:-4] + ("aaaa" if not trial.read.endswith("aaaa") else "bbbb")
    ingest = server.ask("POST", "/v1/tokens", json={"scope": "ingest", "trial": "locked"}).json()["token"]
    with looking(browser, server, wrong) as watched:
        page = watched.page
        page.get_by_text("This token is not valid, or it was revoked.").wait_for()
        assert page.evaluate("sessionStorage.length + localStorage.length") == 0
        enter(page, ingest)
        page.get_by_text("This token sends records and reads nothing.").wait_for()
        enter(page, "ein Schlüssel")
        page.get_by_text("This text cannot be a token").wait_for()
        assert page.get_by_label("Access token").get_attribute("aria-invalid") == "true"
        assert serious_findings(page) == []
        enter(page, trial.read)
        page.get_by_role("heading", name="locked").wait_for()
        # The browser itself complains of the two refusals; nobody else does.
        assert len(watched.errors) == 2
        assert all("401" in error or "403" in error for error in watched.errors)


def test_the_token_is_in_no_address_and_goes_with_the_tab(browser: Browser, server: Served) -> None:
    trial = Arriving(server, "private")
    secret = trial.read.split("_", 2)[2]  # which may have such a line itself
    addresses: list[str] = []
    with looking(browser, server, trial.read) as watched:
        page = watched.page
        page.on("request", lambda request: addresses.append(request.url))
        page.get_by_text("Effects need").wait_for()
        page.reload()
        page.get_by_text("Effects need").wait_for()  # entered once
        assert len(addresses) > 5
        assert not any(secret in address for address in [*addresses, page.url])
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        assert secret not in page.content()
        other = page.context.new_page()
        other.goto(server.url)
        other.get_by_label("Access token").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_label("Access token").wait_for()
        assert page.evaluate("sessionStorage.length") == 0
        watched.require_quiet()


def test_a_token_that_is_revoked_meanwhile_is_asked_for_again(browser: Browser, server: Served) -> None:
    Arriving(server, "revoked")
    issued = server.ask("POST", "/v1/tokens", json={"scope": "read", "trial": "revoked"}).json()
    with looking(browser, server, issued["token"]) as watched:
        page = watched.page
        page.get_by_role("heading", name="revoked").wait_for()
        assert server.ask("DELETE", f"/v1/tokens/{issued['id']}").status_code == 204
        page.get_by_text("This token is not valid, or it was revoked.").wait_for()
        assert page.evaluate("sessionStorage.length") == 0


def test_a_trial_of_somebody_else_is_not_shown(browser: Browser, server: Served) -> None:
    trial = Arriving(server, "mine")
    Arriving(server, "theirs")
    with looking(browser, server, trial.read, "#/trials/theirs") as watched:
        watched.page.get_by_text("There is no trial with this name").wait_for()
        watched.page.get_by_role("link", name="All trials that this token shows").click()
        watched.page.get_by_role("heading", name="Trials").wait_for()
        shown = watched.page.locator("tbody a")
        until(watched.page, lambda: shown.count() > 0)
        assert shown.all_inner_texts() == ["mine"]


def test_no_trials_then_one_and_a_server_that_goes_and_comes_back(
    browser: Browser, served_from: Nursery, tmp_path: Path
) -> None:
    with Served(tmp_path, served_from) as server, looking(browser, server, server.admin) as watched:
        page = watched.page
        page.get_by_role("heading", name="No trials yet").wait_for()
        trial = Arriving(server, "first")
        trial.send(100)
        page.get_by_role("link", name="first").click()
        page.locator("#estimate").wait_for()
        before = text(page, "#estimate")
        watched.require_quiet()
        server.kill()
        page.locator("#away").wait_for()
        assert "does not answer" in text(page, "#away")
        assert text(page, "#estimate") == before  # what was there stays there
        server.start()
        trial.send(500, lift=9.0)
        page.locator("#away").wait_for(state="hidden")
        until(page, lambda: text(page, "#folded") == "600")
        assert number(text(page, "#estimate")) > number(before) + 1


def test_nothing_is_asked_while_nobody_looks(browser: Browser, server: Served) -> None:
    trial = Arriving(server, "hidden")
    with looking(browser, server, trial.read) as watched:
        page = watched.page
        page.get_by_text("Effects need").wait_for()
        page.evaluate(HIDE)
        asked: list[str] = []
        page.wait_for_timeout(300)  # what is under way
        page.on("request", lambda request: asked.append(request.url))
        page.wait_for_timeout(2_000)
        assert asked == []
        trial.send(50)
        page.evaluate("() => { window.seen = 'visible'; document.dispatchEvent(new Event('visibilitychange')); }")
        until(page, lambda: text(page, "#folded") == "50")


# What names may be, who may use it, and how it looks.


def test_names_are_text_whatever_they_look_like(browser: Browser, server: Served) -> None:
    arms = {HOSTILE: 0.5, HOSTILE_ARM: 0.5}
    trial = Arriving(server, "hostile", arms=arms, outcomes=[HOSTILE_COLUMN, HOSTILE], arm="{{constructor}}")
    trial.send(200)
    with looking(browser, server, server.admin, "#/trials/hostile") as watched:
        page = watched.page
        page.on("dialog", lambda dialog: watched.errors.append(f"a dialog: {dialog.message}"))
        page.locator("#estimate").wait_for()
        assert HOSTILE_ARM in text(page, "#verdict")
        assert HOSTILE_COLUMN in text(page, "#verdict")
        page.get_by_label("Outcome").select_option(HOSTILE)
        until(page, lambda: HOSTILE in text(page, "#verdict"))
        for summary in page.locator("summary:visible").all():
            summary.click()
        until(page, lambda: trial.points == 1)
        assert page.locator("main img, main script, main [onerror], main [onload]").count() == 0
        assert page.evaluate("document.scripts.length") == 1
        watched.require_quiet()
        page.goto(f"{server.url}/#/trials/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
        page.get_by_text("There is no trial with this name").wait_for()
        page.goto(f"{server.url}/#/trials/%E0%A4%A")  # no text at all
        page.get_by_role("heading", name="Trials").wait_for()
        assert not any("dialog" in error for error in watched.errors)


def test_everything_can_be_done_with_the_keyboard(browser: Browser, server: Served) -> None:
    Arriving(server, "beside-keys")  # a single trial would be opened at once
    trial = Arriving(server, "keys", outcomes=["revenue", "visits"])
    trial.send(100)
    with page_at(browser, server.url) as watched:
        page = watched.page
        page.set_default_timeout(PATIENCE)
        page.get_by_label("Access token").wait_for()
        page.keyboard.type(server.admin)  # the field has the focus
        page.keyboard.press("Enter")
        page.get_by_role("link", name="keys", exact=True).wait_for()
        tab_to(page, "keys")
        page.keyboard.press("Enter")
        page.locator("#estimate").wait_for()
        until(page, lambda: trial.points == 1)
        trial.send(100)
        until(page, lambda: page.locator(".chart").get_attribute("aria-valuemax") == "1")
        tab_to(page, "choose-outcome")
        page.keyboard.press("ArrowDown")
        until(page, lambda: "visits" in text(page, "#verdict"))
        until(page, lambda: page.locator(".chart").get_attribute("aria-valuemax") == "1")
        tab_to(page, "Step through")
        ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert ring == "solid"
        page.keyboard.press("ArrowLeft")
        assert "after 100 records" in (page.locator(".chart").get_attribute("aria-valuetext") or "")
        assert text(page, ".readout").startswith("Then, after 100 records")
        page.keyboard.press("End")
        assert "after 200 records" in (page.locator(".chart").get_attribute("aria-valuetext") or "")
        tab_to(page, "The same as a table")
        page.keyboard.press("Enter")
        page.get_by_role("region", name="The course of the effect").wait_for()
        trial.send(100)
        until(page, lambda: text(page, "#folded") == "300")
        focused = page.evaluate("document.activeElement.textContent")
        assert focused == "The same as a table"  # records that arrive take the focus from nobody
        watched.require_quiet()


def tab_to(page: Page, wanted: str) -> None:
    """Tab until something of this id, label or text has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        about = page.evaluate(
            """() => { const e = document.activeElement;
                return [e.id, e.getAttribute('aria-label') ?? '', e.matches('a, summary') ? e.textContent : ''] }"""
        )
        if any(wanted and part.startswith(wanted) for part in about):
            return
    raise AssertionError(f"no tab leads to {wanted}")


@pytest.fixture(scope="module")
def shown(served_from: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str]]]:
    """A server whose list has nothing but these, and a token and an address for each kind of page."""
    with Served(tmp_path_factory.mktemp("shown"), served_from) as server:
        yield server, _every_kind_of_page(server)


def _every_kind_of_page(server: Served) -> dict[str, str]:
    many = Arriving(
        server,
        "large",
        arms={f"an arm with quite a long name, number {i}": 0.125 for i in range(8)},
        outcomes=["revenue", "visits"],
        covariates=["before"],
    )
    many.send(400)
    Arriving(server, "empty")
    failing = Arriving(server, "failing")
    failing.send(200)
    failing.send(100, only=1)
    return {
        "": server.admin,
        "#/trials/large": many.read,
        "#/trials/empty": server.admin,
        "#/trials/failing": failing.read,
    }


@pytest.mark.parametrize(("width", "scheme"), mostly_slow([(400, "light"), (1920, "dark")], (400, "light")))
def test_no_serious_finding_and_no_sideways_scrolling(
    browser: Browser, shown: tuple[Served, dict[str, str]], width: int, scheme: Scheme
) -> None:
    server, pages = shown
    with page_at(browser, server.url, width=width, scheme=scheme) as watched:
        page = watched.page
        page.set_default_timeout(PATIENCE)
        assert serious_findings(page) == []
        for path, token in pages.items():
            page.evaluate("([key, token]) => sessionStorage.setItem(key, token)", [TOKEN, token])
            page.goto(f"{server.url}/{path}")
            page.reload()
            page.locator("table.trials, #estimate, #verdict:has-text('No effects yet')").first.wait_for()
            if not path:
                assert page.locator(".trials .pill.open:visible").count() == 3
            for summary in page.locator("main summary:visible").all():
                summary.click()
            assert serious_findings(page) == [], path
            assert sideways_scroll(page) == 0, path
        watched.require_quiet()


def test_the_pages_are_closed_to_everything_else(server: Served) -> None:
    for path in ("/", "/dashboard/main.js", "/dashboard/style.css", "/dashboard/icon.svg"):
        answer = server.ask("GET", path, "")
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].count("charset") == (0 if path.endswith("svg") else 1), path
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-cache"
    told = server.ask("GET", "/v1/trials")
    assert told.headers["Cache-Control"] == "no-store"
    assert told.headers["X-Content-Type-Options"] == "nosniff"
    for path in ("/dashboard/", "/dashboard/..%2fpages.py", "/dashboard/../pages.py", "/dashboard/nothing.js"):
        assert server.ask("GET", path, "").status_code == 404, path


def test_the_scripts_make_no_markup_from_text_and_load_nothing_from_elsewhere() -> None:
    files = {file.name: file.read_text() for file in FILES.iterdir()}
    assert {"index.html", "style.css", "main.js", "course.js"} <= set(files)
    for name, content in files.items():
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
            "localStorage",
        ):
            assert word not in content, (name, word)
        plain = content.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|url\(\s*['\"]?//", plain), name
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", content), name
        assert len(content.splitlines()) < 300, name
