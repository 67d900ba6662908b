#!/bin/sh
# Copies what a running server has stored: deploy/backup.sh DATA-FOLDER|postgresql://… BACKUP-FOLDER
# The copy is encrypted as the original is. The file of version keys is in it, the master key is not. If the server has
# --version-keys, set FOLDAWAY_VERSION_KEYS to the same. docs/deployment.md says what a backup means for the promises.
set -eu
umask 077
[ $# -eq 2 ] || { echo "Name the folder or the database of the trials, then a new folder for the backup." >&2; exit 1; }
from=$1
to=$2
versions=${FOLDAWAY_VERSION_KEYS:-}
case $from in
*://*) ;;
*)
    for file in foldaway.db keys.db; do
        [ -f "$from/$file" ] || { echo "There are no trials in $from: it has no $file." >&2; exit 1; }
    done
    versions=${versions:-$from/version.keys}
    ;;
esac
[ ! -e "$to" ] || { echo "$to exists already: name a new folder for this backup. Nothing was backed up." >&2; exit 1; }
mkdir "$to"
trap 'rm -rf "$to"; echo "Nothing was backed up." >&2' EXIT  # until all of it is there

# States and their keys at the same moment: while both are copied, no server may write.
case $from in
*://*)
    if [ -z "$versions" ]; then
        name=$(psql --no-psqlrc --tuples-only --no-align --command "SELECT current_database()" "$from")
        versions="${XDG_STATE_HOME:-$HOME/.local/state}/foldaway/versions/$name.keys"
    fi
    export from to versions
    psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --output /dev/null "$from" <<'END'
BEGIN;
SELECT key FROM foldaway_trials_meta FOR UPDATE;
SELECT key FROM foldaway_keys_meta FOR UPDATE;
\! pg_dump --format=custom --file "$to/draft" "$from"
\! [ ! -f "$versions" ] || cp "$versions" "$to/version.keys" || rm "$to/draft"
COMMIT;
END
    mv "$to/draft" "$to/foldaway.dump"
    ;;
*)
    "${PYTHON:-python3}" - "$from" "$to" "$versions" <<'END'
import shutil, sqlite3, sys
from pathlib import Path

source, target, versions = map(Path, sys.argv[1:])
files = ["foldaway.db", "keys.db"]
held = [sqlite3.connect(f"file:{source / file}?mode=rw", uri=True, isolation_level=None, timeout=60) for file in files]
for connection in held:
    connection.execute("BEGIN IMMEDIATE")
for file in files:
    reading, writing = sqlite3.connect(f"file:{source / file}?mode=ro", uri=True), sqlite3.connect(target / file)
    reading.backup(writing)
    writing.close()
if versions.exists():
    shutil.copyfile(versions, target / "version.keys")
END
    ;;
esac
trap - EXIT
[ -f "$to/version.keys" ] || cat >&2 <<END
There is no file $versions. Unless foldaway was older than such files, open trials cannot be read from this backup: if the
server has --version-keys, set FOLDAWAY_VERSION_KEYS to the same, and make another backup.
END
echo "Backed up to $to. It is of no use without the server's master key, which belongs elsewhere."
