"""How long `import foldaway` and `foldaway --help` take, each in a fresh process."""

from __future__ import annotations

import subprocess
import sys

from measure import best_times, show


def python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def main() -> None:
    """Print the table."""
    contestants = {
        "python, nothing imported": lambda: python("pass"),
        "import numpy, pyarrow": lambda: python("import numpy, pyarrow"),
        "import foldaway": lambda: python("import foldaway"),
        "foldaway --help": lambda: subprocess.run(
            [sys.executable, "-m", "foldaway", "--help"], check=True, stdout=subprocess.DEVNULL
        ),
    }
    times = best_times(contestants, rounds=7)
    base = times["import numpy, pyarrow"]
    rows = [[name, f"{t:.2f} s", f"{t / base:.1f}"] for name, t in times.items()]
    show("Start-up, best of seven fresh processes", rows, ["", "time", "times `import numpy, pyarrow`"])


if __name__ == "__main__":
    main()
