#!/bin/sh
# Builds the README files and docs/ as a site: docs/build_site.sh [FOLDER]. A broken link is an error.
# MKDOCS names the program, as requirements/docs.txt installs it.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
site=${1:-$here/site}
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
cd "$here"
git ls-files -z --cached --others --exclude-standard '*.md' LICENSE '*.svg' '*.png' '*.ipynb' |
    xargs -0 cp --parents -t "$source"
DOCS_SOURCE=$source NO_MKDOCS_2_WARNING=1 "${MKDOCS:-mkdocs}" build -f docs/mkdocs.yml -d "$site"
