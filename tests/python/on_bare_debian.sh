#!/bin/sh
# Installs a wheel of build/wheels on a bare Debian with the system's own Python, and runs there every example of
# docs/python.md and the package's tests, but for those that compare with the program. As root, in a chroot:
#   tools/bare_machine run debian:11 ROOT --bind "$PWD:/repository" sh /repository/tests/python/on_bare_debian.sh
set -eu
repository=$(cd "$(dirname "$0")/../.." && pwd)
export DEBIAN_FRONTEND=noninteractive PYTHONDONTWRITEBYTECODE=1
apt-get -qq update
apt-get -qq install -y --no-install-recommends ca-certificates python3-venv >/dev/null
rm -rf /sluice-wheel
python3 -m venv /sluice-wheel
tag=$(python3 -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
/sluice-wheel/bin/pip --disable-pip-version-check install --quiet "$repository"/build/wheels/sluice-*-"$tag"-*.whl
echo "$(. /etc/os-release && echo "$PRETTY_NAME"), $(/sluice-wheel/bin/python --version), $(/sluice-wheel/bin/pip --version | cut -d' ' -f1-2):" \
  "sluice $(/sluice-wheel/bin/python -c 'import sluice; print(sluice.__version__)')"
cd /
for test in pages planning; do
  /sluice-wheel/bin/python "$repository/tests/python/${test}_test.py"
done
