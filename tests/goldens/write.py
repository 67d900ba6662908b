"""Write all golden files anew: `make goldens`. What differs goes into a commit of its own that names the reason."""

from __future__ import annotations

from goldens.cases import CASES, readings
from goldens.files import EFFECTS, HELP, OPENAPI, effects_file, with_repeats, written
from goldens.surfaces import helps, openapi


def main() -> None:
    """Write the file of every case, and remove those of cases that there are no more."""
    EFFECTS.mkdir(exist_ok=True)
    for file in EFFECTS.glob("*.json"):
        if file.stem not in CASES:
            file.unlink()
    for name in CASES:
        effects_file(name).write_text(written(with_repeats(readings(name))), "utf-8")
    OPENAPI.write_text(written(openapi()), "utf-8")
    HELP.write_text("\n".join(helps()), "utf-8")


if __name__ == "__main__":
    main()
