#!/usr/bin/env bash
# Builds the kit's programs from the sources that travelled, with a compiler, CMake, ninja and CUDA's toolkit of that
# machine and the headers and libraries that came along: gpu_kit_build.sh SITE_PACKAGES. What it makes comes before the
# programs that travelled.
set -euo pipefail
folder=$(cd "$(dirname "$0")/.." && pwd)
site_packages=$1
prefix=$folder/prefix/usr
machine=$(cd "$prefix/lib" && ls -d *-linux-gnu)

mkdir -p "$folder/deps/libtorch/lib/python3"
ln -sfn "$site_packages" "$folder/deps/libtorch/lib/python3/site-packages"
export PKG_CONFIG_SYSROOT_DIR=$folder/prefix PKG_CONFIG_LIBDIR=$prefix/lib/$machine/pkgconfig:$prefix/share/pkgconfig
command -v pkg-config >/dev/null || {
  export PKG_CONFIG=$prefix/bin/pkgconf
  export LD_LIBRARY_PATH=$prefix/lib/$machine:${LD_LIBRARY_PATH:-}
}

cmake -S "$folder" -B "$folder/built" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" \
  -DSLUICE_DEPS="$folder/deps" -DSLUICE_CUDA=ON -DSLUICE_PYTHON=OFF \
  -DCMAKE_CXX_FLAGS="-isystem $prefix/include" \
  -DCMAKE_EXE_LINKER_FLAGS="-Wl,--allow-shlib-undefined -L$prefix/lib/$machine -Wl,-rpath-link,$prefix/lib/$machine"
cmake --build "$folder/built" -j "$(nproc)" \
  --target ops_test layers_test transport_test runtime_test device_layers_bench sluice
