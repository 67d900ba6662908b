#!/bin/sh
# Copies what a running server has stored: deploy/backup.sh DATA-FOLDER|postgresql://… BACKUP-FOLDER
# The copy is encrypted as the original is, and its key is not in it. docs/deployment.md says what a backup means for the promises.
set -eu
umask 077
from=${1:?name the folder or the database of the trials}
to=${2:?name a new folder for the backup}
case $from in
*://*) ;;
*)
    for file in foldaway.db keys.db; do
        [ -f "$from/$file" ] || { echo "There are no trials in $from: it has no $file." >&2; exit 1; }
    done
    ;;
esac
mkdir "$to"
trap 'rm -rf "$to"; echo "Nothing was backed up." >&2' EXIT  # until all of it is there

case $from in
*://*)
    pg_dump --format=custom --file "$to/foldaway.dump" "$from"
    ;;
*)
    # Trials and keys at the same moment: neither may change while both are copied.
    "${PYTHON:-python3}" - "$from" "$to" <<'END'
import sqlite3, sys
from pathlib import Path

source, target = map(Path, sys.argv[1:])
files = ["foldaway.db", "keys.db"]
held = [sqlite3.connect(f"file:{source / file}?mode=rw", uri=True, isolation_level=None, timeout=60) for file in files]
for connection in held:
    connection.execute("BEGIN IMMEDIATE")
for file in files:
    reading, writing = sqlite3.connect(f"file:{source / file}?mode=ro", uri=True), sqlite3.connect(target / file)
    reading.backup(writing)
    writing.close()
END
    ;;
esac
trap - EXIT
echo "Backed up to $to. It is of no use without the server's master key, which belongs elsewhere."
