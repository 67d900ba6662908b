#!/bin/sh
# Puts a backup where there is nothing yet: deploy/restore.sh BACKUP-FOLDER DATA-FOLDER|postgresql://…
# Stop all servers first. Then give the server the master key of that time; it upgrades the tables as it starts. If it has
# --version-keys, set FOLDAWAY_VERSION_KEYS to the same.
set -eu
umask 077
from=${1:?name the folder of the backup}
to=${2:?name the folder or the empty database to restore to}
versions=${FOLDAWAY_VERSION_KEYS:-}

case $to in
*://*)
    [ -f "$from/foldaway.dump" ] || { echo "There is no backup of a database in $from: it has no foldaway.dump." >&2; exit 1; }
    if [ -z "$versions" ]; then
        name=$(psql --no-psqlrc --tuples-only --no-align --command "SELECT current_database()" "$to")
        versions="${XDG_STATE_HOME:-$HOME/.local/state}/foldaway/versions/$name.keys"
    fi
    ;;
*)
    for file in foldaway.db keys.db; do
        [ -f "$from/$file" ] || { echo "There is no backup of a folder in $from: it has no $file." >&2; exit 1; }
        [ ! -e "$to/$file" ] || { echo "$to/$file is there already: move it away first." >&2; exit 1; }
    done
    versions=${versions:-$to/version.keys}
    ;;
esac
# It may be another database's: if it were overwritten, that one's open trials would be lost.
[ ! -e "$versions" ] || { echo "$versions is there already: move it away first, or set FOLDAWAY_VERSION_KEYS." >&2; exit 1; }

case $to in
*://*)
    # All or nothing; a database that has the tables already stays as it is.
    pg_restore --exit-on-error --single-transaction --no-owner --no-privileges --dbname "$to" "$from/foldaway.dump"
    ;;
*)
    mkdir -p "$to"
    cp "$from/foldaway.db" "$from/keys.db" "$to/"
    ;;
esac
if [ -f "$from/version.keys" ]; then
    mkdir -p "$(dirname "$versions")"
    cp "$from/version.keys" "$versions"
fi
echo "Restored to $to. All that happened since the backup is unknown there: see docs/deployment.md before you go on."
