"""`foldaway end`: each refusal changes nothing, and a kill at any step leaves a trial that can end, or its effects."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import foldaway as fa
from commands import foldaway
from foldaway.account.stream_file import STATE
from foldaway.cli.terminal.saved_trial import SavedTrial
from foldaway.errors import EndedError, KeyWarning, TooEarly
from foldaway.keeping.saved import StreamPositions, is_encrypted
from foldaway.keeping.user_keys import user_key

KEY = bytes(range(16))


def folded(name: str, n: int = 400, *, key: bytes | None = None, carriers: int | None = None) -> fa.Trial:
    """A trial of so many units, of which all or so many carry the outcome."""
    arms = {"a": 0.5, "b": 0.5}
    trial = fa.Trial(fa.Plan(name=name, arm="g", arms=arms, outcomes=["y"], unit="u"), key=key)
    y = [float(1 + i % 7) if carriers is None or i < carriers else 0.0 for i in range(n)]
    trial.fold({"g": ["ab"[i % 2] for i in range(n)], "u": list(range(n)), "y": y})
    return trial


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("n", "carriers", "words", "typed"),
    [
        (400, None, [], b""),
        (400, None, [], b"n\n"),
        (400, None, [], b"y\n"),
        (400, None, ["--yes", "--deadline", "5"], b""),
        (400, None, ["--yes", "--share", "2"], b""),
        (60, None, ["--yes"], b""),
        (400, 0, ["--yes"], b""),
        (400, 0, ["--yes", "--exact"], b""),
    ],
)
@pytest.mark.parametrize("store", [False, True])
def test_a_refusal_changes_no_byte(
    n: int, carriers: int | None, words: list[str], typed: bytes, store: bool, tmp_path: Path
) -> None:
    home, place = tmp_path / "home", tmp_path / "place"
    file = place / STATE if store else place
    file.parent.mkdir(exist_ok=True)
    (tmp_path / "key").write_text(KEY.hex())
    trial = folded("refused", n, key=KEY, carriers=carriers)
    trial.save(file, positions=StreamPositions("nats ORDERS") if store else None)
    env = {"XDG_STATE_HOME": str(home), "FOLDAWAY_TRIAL_KEY": str(tmp_path / "key")}
    foldaway("effects", place, env=env)
    before = files(tmp_path)
    done = foldaway("end", place, *words, env=env, stdin=typed, code=1)
    assert "error: " in done.stderr
    assert done.stdout == ""
    after = files(tmp_path)
    assert {path: data for path, data in after.items() if not path.is_relative_to(home)} == before | {
        path: data for path, data in before.items() if path.is_relative_to(home)
    }
    done = foldaway("end", place, "--yes", "--without-effects", env=env)
    assert f"{place} has ended" in done.stderr
    assert not (tmp_path / "key").exists()


def test_it_is_refused_where_only_one_row_would_be_withheld() -> None:
    trial = fa.Trial(fa.Plan(name="one-row", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y", "rare"], unit="u"))
    n = 400
    y, rare = [float(i % 7) for i in range(n)], [float(i < 3) for i in range(n)]
    trial.fold({"g": ["ab"[i % 2] for i in range(n)], "u": list(range(n)), "y": y, "rare": rare})
    assert {row.outcome for row in trial.told() if row.estimate is None} == {"rare"}
    before = trial.dumps()
    with pytest.raises(TooEarly, match=r"effects would be withheld: .* of .*, such as rare"):
        trial.end()
    assert trial.dumps() == before
    assert {row.outcome for row in trial.end(without_effects=True) if row.estimate is not None} >= {"y"}


@pytest.mark.parametrize(("n", "carriers"), [(0, None), (60, None), (400, 0)])
def test_in_python_too_it_is_refused_and_says_why(n: int, carriers: int | None) -> None:
    trial = folded(f"python-{n}-{carriers}", n, carriers=carriers)
    before = trial.dumps()
    with pytest.raises(TooEarly, match="effects would be withheld"):
        trial.end()
    assert trial.dumps() == before
    assert not trial.ended
    trial.fold({"g": ["a"], "u": [-1], "y": [1.0]})
    assert trial.end(without_effects=True).final
    with pytest.raises(EndedError):
        trial.fold({"g": ["a"], "u": [-2], "y": [1.0]})


def by_python(file: Path, key: Path | None) -> None:
    fa.Trial.load(file, key=None if key is None else KEY).end(file)


def by_command(file: Path, key: Path | None) -> None:
    SavedTrial(file, key).end(exact=False, without_effects=False, confirmed=True)


@pytest.mark.once
@pytest.mark.parametrize("end", [by_python, by_command])
@pytest.mark.parametrize("given", [False, True])
def test_a_kill_at_any_step_leaves_a_trial_that_can_end_or_its_effects(
    end: Callable[[Path, Path | None], None], given: bool, tmp_path: Path
) -> None:
    left = set()
    for step in range(1, 100):
        folder = tmp_path / str(step)
        folder.mkdir()
        file, key = folder / "state", folder / "key" if given else None
        if key is not None:
            key.write_text(KEY.hex())
        trial = folded(f"killed-{end.__name__}-{given}-{step}", key=KEY if given else None)
        expected = trial.effects().counts
        trial.save(file)
        if not killed(lambda file=file, key=key: end(file, key), step):  # type: ignore[misc]
            break
        left.add(is_encrypted(file))
        if is_encrypted(file):
            assert fa.Trial.load(file, key=KEY if given else None).effects().counts == expected
        else:
            assert fa.Effects.load(file).final
        by_command(file, key)
        assert fa.Effects.load(file).final
        assert user_key(trial.plan.design, new=False) is None
        assert key is None or not key.exists()
    assert left == {True, False}
    assert fa.Effects.load(file).final


def killed(action: Callable[[], object], step: int) -> bool:
    """Whether SIGKILL came at this wait for the disk, which is between any two steps, before the action was over."""
    child = os.fork()
    if child == 0:
        waits, wait = 0, os.fsync

        def counted(fd: Any) -> None:
            nonlocal waits
            waits += 1
            if waits == step:
                os.kill(os.getpid(), signal.SIGKILL)
            wait(fd)

        os.fsync = counted
        try:
            action()
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("given", [False, True])
def test_the_other_states_that_the_same_key_opens_are_named_before_it_goes(given: bool, tmp_path: Path) -> None:
    key, words = (KEY, ["--key", tmp_path / "key"]) if given else (None, [])
    (tmp_path / "key").write_text(KEY.hex())
    name = f"named-{given}"
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    ended, copy, far, gone, moved, other = (
        tmp_path / place
        for place in ["here/state", "here/copy", "there/far", "there/gone", "there/moved", "here/other"]
    )
    for place in (ended, far, gone, moved):
        folded(name, key=key).save(place)
    folded(f"{name}-other", key=key).save(other)
    copy.write_bytes(ended.read_bytes())
    gone.unlink()
    moved.write_bytes(b"something else")
    refused = foldaway("end", ended, *words, code=1).stderr
    said = f"The same key opens {far} and {copy}: nobody can read them after this end.\n"
    assert said in refused
    assert said in foldaway("end", ended, *words, "--yes").stderr
    assert "opens" not in foldaway("end", ended, *words).stderr
    with pytest.raises(fa.StateError):
        fa.Trial.load(far)
    if not given:
        assert fa.Trial.load(other).n == 400


def test_in_python_a_warning_names_them(tmp_path: Path) -> None:
    trial = folded("warned")
    for place in ("one", "two"):
        trial.save(tmp_path / place)
    assert trial.other_states(tmp_path / "one") == [tmp_path / "two"]
    with pytest.warns(KeyWarning, match="two: nobody can read it after this end"):
        trial.end(tmp_path / "one")
    assert trial.other_states() == []
    alone = folded("alone")
    alone.save(tmp_path / "three")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone.end(tmp_path / "three")
