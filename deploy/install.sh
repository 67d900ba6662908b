#!/bin/sh
# Installs the server into a folder: deploy/install.sh FOLDER [WHAT …]
# WHAT is for pip: by default this checkout, with the packages that requirements/serve.txt pins. Run it again to upgrade.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 1 ] || { echo "Name the folder to install into: deploy/install.sh FOLDER." >&2; exit 1; }
folder=$1
shift
python=${PYTHON:-python3}

[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
if [ $# -gt 0 ]; then
    "$folder/bin/python" -m pip install --quiet --no-cache-dir --upgrade "$@"
else
    "$folder/bin/python" -m pip install --quiet --no-cache-dir --no-deps --require-hashes -r "$here/requirements/serve.txt"
    "$folder/bin/python" -m pip install --quiet --no-cache-dir --no-deps --no-build-isolation --force-reinstall "$here"
fi

# The loops are compiled here, so that no server does it at its start. Whoever runs the server must be able to write to
# this folder: numba uses no other. A processor of another kind compiles again, once.
rm -rf "$folder/kernels"
mkdir -p "$folder/kernels"
NUMBA_CACHE_DIR=$folder/kernels "$folder/bin/python" -c "from foldaway.forgetting.rehearsal import compile_loops; compile_loops()"
echo "Installed: $("$folder/bin/foldaway" --version) in $folder"
