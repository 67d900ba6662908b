"""Write all golden files anew: `make goldens`. What differs goes into a commit of its own that names the reason."""

from __future__ import annotations

from typing import Any

from goldens.cases import CASES, readings
from goldens.comparing import DIGITS
from goldens.files import EFFECTS, HELP, OPENAPI, STATEMENTS, effects_file, effects_in, with_repeats, written
from goldens.statements import statements
from goldens.surfaces import helps, openapi


def main() -> None:
    """Write the file of every case, and remove those of cases that there are no more."""
    EFFECTS.mkdir(exist_ok=True)
    for file in EFFECTS.glob("*.json"):
        if file.stem not in CASES:
            file.unlink()
    for name in CASES:
        old = effects_in(name) if effects_file(name).exists() else {}
        effects_file(name).write_text(written(with_repeats(_settled(old, readings(name)))), "utf-8")
    OPENAPI.write_text(written(openapi()), "utf-8")
    HELP.write_text("\n".join(helps()), "utf-8")
    STATEMENTS.mkdir(exist_ok=True)
    for dialect, text in statements().items():
        (STATEMENTS / f"{dialect}.sql").write_text(text, "utf-8")


def _settled(old: Any, new: Any) -> Any:
    """What was read now, but for last digits that a machine's linear algebra moves: they stay as they were."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {name: _settled(old.get(name), value) for name, value in new.items()}
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [_settled(before, after) for before, after in zip(old, new, strict=True)]
    if isinstance(old, float) and isinstance(new, float) and abs(new - old) <= DIGITS * abs(old):
        return old
    return new


if __name__ == "__main__":
    main()
