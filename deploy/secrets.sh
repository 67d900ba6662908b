#!/bin/sh
# Makes what must not be in an image, a repository or a backup of the database: deploy/secrets.sh FOLDER [HOST]
# What is there already stays as it is, so it is safe to run again.
set -eu
umask 077
[ $# -ge 1 ] || { echo "Name the folder for the secrets: deploy/secrets.sh FOLDER [HOST]." >&2; exit 1; }
folder=$1
host=${2:-localhost}
mkdir -p "$folder" && chmod 700 "$folder"

random() { od -An -N "$1" -t x1 /dev/urandom | tr -d ' \n'; }

[ -e "$folder/master.key" ] || random 32 >"$folder/master.key"             # encrypts all that is stored
[ -e "$folder/database.password" ] || random 24 >"$folder/database.password"
if [ ! -e "$folder/tls.key" ]; then
    # For a start: browsers and clients trust it only if they are told to. Put a real one in its place.
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 -subj "/CN=$host" \
        -addext "subjectAltName=DNS:$host" -keyout "$folder/tls.key" -out "$folder/tls.crt" 2>/dev/null
fi
# Containers read these files as users of their own; on this machine nobody else gets into the folder.
chmod 444 "$folder"/*
echo "Secrets are in $folder. Keep a copy of master.key apart from all backups: without it nobody can read them."
