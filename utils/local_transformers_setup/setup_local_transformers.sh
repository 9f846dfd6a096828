#!/usr/bin/env bash
# Makes the transformers that debug_model imports editable, as a copy in your cache folder; the
# installed package stays as it is. Prints where to edit. Edits that are there already are kept.
#
#     bash utils/local_transformers_setup/setup_local_transformers.sh [--bazel | --python PATH]
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
exec bash "$here/local_transformers.sh" setup "$@"
