#!/usr/bin/env bash
# What the two scripts beside this one share: finds the environment that debug_model runs in. That is the
# Python on PATH if it can run debug_model, else the one that Bazel makes.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
action=$1
shift

can_run_debug_model() {
    "$1" -c '
import importlib.util, sys
names = ("click", "torch", "transformers")
sys.exit(sys.version_info < (3, 11) or not all(map(importlib.util.find_spec, names)))
' 2>/dev/null
}

find_python() {
    local name
    for name in python python3.11 python3; do
        if can_run_debug_model "$name"; then
            command -v -- "$name"
            return
        fi
    done
}

case ${1-} in
    --bazel) python= ;;
    --python)
        python=${2:?"--python needs the path of a Python"}
        can_run_debug_model "$python" || {
            echo "error: $python cannot run debug_model: it needs Python 3.11, click, torch and transformers" >&2
            exit 2
        }
        ;;
    '') python=$(find_python) ;;
    *)
        echo "error: expected --bazel, --python PATH or nothing, got $1" >&2
        exit 2
        ;;
esac

if [ -n "$python" ]; then
    PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec "$python" -P -m tools.local_transformers "$action"
fi
cd -- "$root"
exec ./bazelw run --noshow_progress --ui_event_filters=-info //tools:local_transformers -- "$action"
