#!/bin/sh
# Puts a backup where there is nothing yet: deploy/restore.sh BACKUP-FOLDER DATA-FOLDER|postgresql://…
# Stop all servers first. Then give the server the master key of that time; it upgrades the tables as it starts. If it has
# --version-keys, set FOLDAWAY_VERSION_KEYS to the same.
set -eu
umask 077

fail() { echo "$1" >&2; exit 1; }

[ $# -eq 2 ] || fail "Name the folder of the backup, then the folder or the empty database to restore to."
from=$1
to=$2
versions=${FOLDAWAY_VERSION_KEYS:-}

case $to in
*://*)
    [ -f "$from/foldaway.dump" ] || fail "There is no backup of a database in $from: it has no foldaway.dump."
    for program in psql pg_restore; do
        command -v "$program" >/dev/null || fail "PostgreSQL's client programs are needed here: there is no $program."
    done
    ask() { psql --no-psqlrc --tuples-only --no-align --no-password --command "$1" "$to" 2>&1; }
    name=$(ask "SELECT current_database()") ||
        fail "The database cannot be opened: $(echo "$name" | tail -n 1). Check its address, and PGPASSWORD or ~/.pgpass."
    found=$(ask "SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'foldaway\_%'") ||
        fail "The database cannot be read: $(echo "$found" | tail -n 1)"
    [ "$found" = 0 ] || fail "There are trials of foldaway in the database $name already: name an empty one."
    versions=${versions:-${XDG_STATE_HOME:-$HOME/.local/state}/foldaway/versions/$name.keys}
    ;;
*)
    for file in foldaway.db keys.db; do
        [ -f "$from/$file" ] || fail "There is no backup of a folder in $from: it has no $file."
        [ ! -e "$to/$file" ] || fail "$to/$file is there already: move it away first."
    done
    [ ! -e "$to/moved" ] || fail "The trials of $to were moved to a database: name another folder, or move $to/moved away."
    versions=${versions:-$to/version.keys}
    ;;
esac
# It may be another database's: if it were overwritten, that one's open trials would be lost.
[ ! -e "$versions" ] || fail "$versions is there already: move it away first, or set FOLDAWAY_VERSION_KEYS."

case $to in
*://*)
    # All or nothing.
    pg_restore --exit-on-error --single-transaction --no-owner --no-privileges --no-password --dbname "$to" \
        "$from/foldaway.dump" || fail "The backup was not restored, for the reason above. The database is as it was."
    ;;
*)
    trap 'rm -f "$to/foldaway.db" "$to/keys.db"; echo "Nothing was restored to $to, for the reason above." >&2' EXIT
    mkdir -p "$to"
    cp "$from/foldaway.db" "$from/keys.db" "$to/"
    trap - EXIT
    ;;
esac
if [ -f "$from/version.keys" ]; then
    { mkdir -p "$(dirname "$versions")" && cp "$from/version.keys" "$versions"; } ||
        fail "The trials are restored, but not their version keys: copy $from/version.keys to $versions before you start a server."
else
    echo "The backup has no version keys: open trials cannot be read from it, unless foldaway was older than such keys." >&2
fi
echo "Restored to $to. Put the master key of that time there, and read docs/deployment.md before you start a server:"
echo "all that happened since the backup is unknown to it."
