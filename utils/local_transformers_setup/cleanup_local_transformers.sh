#!/usr/bin/env bash
# Removes the editable copy of transformers, so that the installed package is imported again. Files that
# you edited are put aside, and their place is printed.
#
#     bash utils/local_transformers_setup/cleanup_local_transformers.sh [--bazel | --python PATH]
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
exec bash "$here/local_transformers.sh" cleanup "$@"
