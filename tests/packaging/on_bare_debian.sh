#!/bin/sh
# Installs the programs' wheel of a release on a bare Debian with the system's own Python, and makes a newcomer's first run
# there: corpus, tokenizer, two ranks, export, generate. Libtorch comes without the libraries of GPU runs. As root, in a chroot:
#   tools/bare_machine run debian:12 ROOT --bind "$PWD:/repository" sh /repository/tests/packaging/on_bare_debian.sh
# DIST names the folder of the release. On a Debian that is older than the wheel's glibc, pip has to refuse the wheel.
set -eu
repository=$(cd "$(dirname "$0")/../.." && pwd)
dist=${DIST:-$repository/dist}
export DEBIAN_FRONTEND=noninteractive PYTHONDONTWRITEBYTECODE=1
apt-get -qq update
apt-get -qq install -y --no-install-recommends ca-certificates python3-venv >/dev/null
rm -rf /sluice-programs /sluice-work
python3 -m venv /sluice-programs
pip="/sluice-programs/bin/pip --disable-pip-version-check --no-cache-dir"
wheel=$(ls "$dist"/sluice_train-*.whl)
glibc=$(ldd --version | sed -n '1s/.* 2\.//p')
wanted=$(echo "$wheel" | sed 's/.*manylinux_2_\([0-9]*\)_.*/\1/')
echo "$(. /etc/os-release && echo "$PRETTY_NAME"), $(/sluice-programs/bin/python --version), glibc 2.$glibc, $(basename "$wheel")"
if [ "$glibc" -lt "$wanted" ]; then
  if $pip install --quiet --no-deps "$wheel" 2>/sluice-refusal; then
    echo "pip installs a wheel that cannot start here" >&2
    exit 1
  fi
  grep "is not a supported wheel on this platform" /sluice-refusal
  exit 0
fi
begin=$(date +%s)
$pip install --quiet --no-deps $(sed -n 's/^libtorch_wheels=(\(.*\))$/\1/p' "$repository/tools/bootstrap") "$wheel"
$pip install --quiet tokenizers jinja2
echo "installed after $(($(date +%s) - begin)) s"
cd /
/sluice-programs/bin/python - <<PYTHON
import pathlib, sys
sys.path.insert(0, "$repository/tests/packaging")
import installed
print(installed.Installed(pathlib.Path(sys.executable), pathlib.Path("/sluice-work")).first_run())
PYTHON
echo "ran after $(($(date +%s) - begin)) s"
