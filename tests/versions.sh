#!/bin/sh
# Run the checks on the lowest ($1 = lowest) or the newest ($1 = newest) versions that pyproject.toml admits, in an
# environment made by the Python $2.
set -eu
case "${1:-}" in
lowest | newest) ;;
*)
    echo "Error: say which versions: make test-versions WHICH=lowest (or WHICH=newest)" >&2
    exit 1
    ;;
esac
venv=.venv-$1
"$2" -m venv --clear "$venv"
pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check"
if [ "$1" = lowest ]; then
    "$2" - >"$venv/constraints.txt" <<'PYTHON'
import re
import tomllib

project = tomllib.load(open("pyproject.toml", "rb"))["project"]
for line in [*project["dependencies"], *project["optional-dependencies"]["cluster"]]:
    print(re.sub(r"([\w-]+)(\[.*\])?>=([\w.]+).*", r"\1==\3", line))
PYTHON
    $pip --constraint "$venv/constraints.txt" --editable ".[cluster]"
else
    $pip --upgrade --upgrade-strategy eager --editable ".[cluster]"
fi
"$venv/bin/python" -m pip list | grep -iE '^(jupyter-book|jupyterlab|numpy|scipy|pandas|geopandas|matplotlib|scikit-learn|nbgrader|nbval|ruff) '
rm -rf _build
"$venv/bin/python" -m mlcourse.cli book build
"$venv/bin/python" -m pytest tests
rm -rf _build
