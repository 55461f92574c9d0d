#!/usr/bin/env bash
# Build DyNet 2.1.2 from its source package for this machine, into .dynet-native/ (ignored by git),
# and next to it the benchmark's programs for its C++ interface (systems/on_dynet/cpp/programs)
# and the replaced parts of DyNet variants (systems/on_dynet/patches).
#
#   scripts/build_dynet_native.sh [--force]
#
# DEVICE: cpu (default), or cuda: into .dynet-cuda/, with systems/on_dynet/patches/*.patch, without
#   cuDNN. Needs nvcc of CUDA 13 (NVCC=/path/to/nvcc), but no GPU; 16 minutes of CPU time.
# ARCHITECTURES: GPU generations to compile for (default "80-real;90-real", A100 and H100).
# PYTHON: interpreter to build for (default .venv/bin/python, else python3.11).
# JOBS: parallel compilations (default: all cores).
# BLAS: of the CPU's products, mkl (x86_64; default on Intel's processors), openblas (default on
#   others) or eigen (always with cuda). MKL and OpenBLAS: docs/systems.md. OpenBLAS and Eigen, with
#   Tree-LSTM training at batch 64, one thread, AMD EPYC (Zen 4): hidden 256 720-750 against 640-665
#   trees/s, hidden 64 2800-3000 against 2650-2800.
# Needs g++, make and a package registry that pip can reach; about 4 minutes on 2 cores.
# DyNet's release flags are used: -Ofast -funroll-loops -march=native.
set -euo pipefail

readonly VERSION=2.1.2
readonly SDIST_SHA256=c1c1de7cdd3a60b6c6491868b0e096b38b88d4ce14ef8bd065cb76bcd9f5a8b9
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root device=${DEVICE:-cpu}
name=dynet-native blas=openblas standard=c++11
! grep -qs GenuineIntel /proc/cpuinfo || blas=mkl
blas=${BLAS:-$blas}
[[ $device != cuda ]] || name=dynet-cuda blas=eigen standard=c++17
readonly name blas standard target="$root/.$name" work="$root/build/$name"
readonly log="$work/build.log" venv="$work/venv"
# Set by prepare_cuda and prepare_blas.
nvcc="" cuda_folder="" headers="" links="" blas_name="none (Eigen)" blas_files=()

say() { printf '%s: %s\n' "$name" "$*"; }
fail() { printf '%s: error: %s\n' "$name" "$*" >&2; exit 1; }
# Run a step with its output in the log; on failure name the step and the log.
step() {
    local what=$1
    shift
    say "$what"
    "$@" >>"$log" 2>&1 || fail "$what failed; see the last lines of $log"
}

find_python() {
    local python=${PYTHON:-$root/.venv/bin/python}
    [[ -x $python ]] || python=$(command -v python3.11) ||
        fail "no Python 3.11 found; install it or set PYTHON=/path/to/python3.11"
    "$python" -c 'import sys; sys.exit(sys.version_info[:2] not in {(3, 11), (3, 12)})' \
        2>/dev/null ||
        fail "expected Python 3.11 or 3.12, got $python; set PYTHON=/path/to/python3.11"
    "$python" -c 'import numpy' 2>/dev/null ||
        fail "$python has no NumPy to build for; install the benchmark first (make install)"
    printf '%s\n' "$python"
}

# Test the import with the interpreter that will run the benchmark, whose NumPy must be compatible.
works() {
    local python=$1 folder=$2
    PYTHONPATH=$folder "$python" - "$folder" >/dev/null 2>&1 <<'PY'
import sys
import numpy as np
import dynet_config
dynet_config.set(mem=64, random_seed=1, autobatch=1)
import dynet as dy
assert dy.__file__.startswith(sys.argv[1]), dy.__file__
w = dy.ParameterCollection().add_parameters((3, 2), init=np.ones((3, 2)))
y = dy.tanh(w * dy.inputTensor(np.array([0.1, 0.2]))).npvalue()
assert np.allclose(y, np.tanh(0.3))
PY
}

make_venv() {
    local python=$1
    [[ -x $venv/bin/python ]] || step "creating a private build environment" "$python" -m venv "$venv"
    # Newer Cython and setuptools reject DyNet's build script; CMake 4 rejects its CMakeLists.txt.
    step "installing build tools (cython<3, setuptools<70, cmake<4, Eigen 3.4)" \
        "$venv/bin/pip" install --disable-pip-version-check -q \
        'cython<3' 'setuptools<70' 'cmake<4' 'cmeel-eigen==3.4.*' wheel numpy
}

# Find nvcc, and fetch the libraries that match its version.
prepare_cuda() {
    local version
    nvcc=${NVCC:-$(command -v nvcc || ls /usr/local/cuda*/bin/nvcc 2>/dev/null | tail -1 || true)}
    [[ -x $nvcc ]] || fail "nvcc not found; install the CUDA 13 toolkit or set NVCC=/path/to/nvcc"
    version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
    [[ $version == 13.* ]] || fail "$nvcc is of CUDA $version: expected 13; set NVCC=/path/to/nvcc"
    step "installing the libraries of CUDA $version" "$venv/bin/pip" install \
        --disable-pip-version-check -q "cuda-toolkit[cublas,curand,cudart]==$version.*"
    cuda_folder=$(package_folder '*site-packages/nvidia/cu13')/lib
    headers="-DHAVE_CUDA -isystem ${cuda_folder%/*}/include"
    links="-Wl,-rpath,$cuda_folder -L$cuda_folder"
    links+=" -l:libcublas.so.13 -l:libcurand.so.10 -l:libcudart.so.13"
    blas_name="cuBLAS $(find_version nvidia-cublas)"
}

# Fetch the BLAS of the CPU's products. MKL loads its kernels at run time, so they are copied, too.
prepare_blas() {
    local eigen=$1 folder
    local -A packages=([openblas]=scipy-openblas32 [mkl]="mkl==2026.*")
    step "installing $blas" "$venv/bin/pip" install --disable-pip-version-check -q --no-deps \
        ${packages[$blas]}
    if [[ $blas == mkl ]]; then
        # Not EIGEN_USE_MKL_ALL: DyNet's own code for MKL overruns its arrays, and gradients of MV-RNN
        # are wrong (dynet/matrix-multiply.h).
        headers="-DEIGEN_USE_BLAS" folder=$venv/lib
        links="-l:libmkl_intel_lp64.so.3 -l:libmkl_gnu_thread.so.3 -l:libmkl_core.so.3 -lgomp -lm"
        blas_name="MKL $(find_version mkl)"
        blas_files=("$folder"/libmkl_{intel_lp64,gnu_thread,core,{,vml_}{def,avx2,avx512,avx10}}.so.3)
    else
        write_blas_names "$eigen"
        headers="-DEIGEN_USE_BLAS -include $work/blas_names.h"
        folder=$(package_folder '*site-packages/scipy_openblas32')/lib links=-lscipy_openblas
        blas_name="OpenBLAS $(find_version scipy-openblas32)"
        blas_files=("$folder"/libscipy_openblas*.so)
    fi
    links="-L$folder $links"
}

# Print the version of a package in the build environment.
find_version() { "$venv/bin/pip" show "$1" 2>/dev/null | sed -n 's/^Version: //p'; }

# Print the directory of a package's files in the build environment.
package_folder() { find "$venv" -type d -path "$1" -print -quit; }

# The packaged OpenBLAS prefixes every symbol to avoid conflicts with NumPy's; Eigen calls plain names.
write_blas_names() {
    local eigen=$1
    grep -oE 'BLASFUNC\([a-z0-9]+\)' "$eigen/Eigen/src/misc/blas.h" | sort -u |
        sed -E 's/BLASFUNC\((.*)\)/#define \1_ scipy_\1_/' >"$work/blas_names.h"
}

unpack_source() {
    local sdist=$work/dyNET-$VERSION.tar.gz
    [[ -f $sdist ]] || step "fetching the source package of DyNet $VERSION" \
        "$venv/bin/pip" download --disable-pip-version-check -q --no-deps --no-build-isolation \
        --no-binary :all: -d "$work" "dyNET==$VERSION"
    echo "$SDIST_SHA256  $sdist" | sha256sum --quiet -c - >>"$log" 2>&1 || {
        rm -f "$sdist"
        fail "dyNET-$VERSION.tar.gz has the wrong checksum and was removed; rerun"
    }
    rm -rf "$work/src" && mkdir "$work/src"
    tar -xzf "$sdist" -C "$work/src" --strip-components=1
    if [[ $device == cuda ]]; then
        local change
        for change in "$root"/systems/on_dynet/patches/*.patch; do
            step "applying ${change##*/}" patch -d "$work/src" -p1 -i "$change"
        done
    fi
    # The last packaging step fails without the license in the build directories.
    local folder
    folder="$work/src/build/$("$venv/bin/python" -c '
import sys
print("py{}.{}-64bit".format(*sys.version_info))')"
    mkdir -p "$folder/python"
    cp "$work/src/LICENSE.txt" "$folder/"
    cp "$work/src/LICENSE.txt" "$folder/python/"
}

compile() {
    local eigen=$1 jobs=${JOBS:-$(nproc)} library
    # With $ORIGIN, the extension finds the libraries in its directory, even if that is moved.
    local linker_flags="-Wl,-rpath,\$ORIGIN -Wl,--no-as-needed $links"
    rm -rf "$work/new"
    step "compiling with $jobs jobs (minutes; progress in $log)" env \
        PATH="$venv/bin:$PATH" EIGEN3_INCLUDE_DIR="$eigen" MAKE_FLAGS="-j$jobs" \
        CFLAGS="-O3 -march=native" CXXFLAGS="$headers" LDFLAGS="$linker_flags" \
        BACKEND="${device/cpu/eigen}" CUDACXX="$nvcc" CUDAFLAGS="$headers" \
        CUDAARCHS="${ARCHITECTURES:-80-real;90-real}" \
        "$venv/bin/pip" install --disable-pip-version-check --no-deps --no-build-isolation \
        --no-cache-dir --target "$work/new" "$work/src"
    library=$(find "$work/src/build" -name libdynet.so -print -quit)
    [[ -n $library ]] || fail "the build made no libdynet.so; see $log"
    cp "$library" "${blas_files[@]}" "$work/new/"
}

describe() {
    local eigen=$1 flags eigen_version compiler
    compiler=$(g++ --version | head -1)
    flags=$(cat "$(find "$work/src/build" -path '*dynet.dir/flags.make' -print -quit)" |
        sed -nE "s/^CXX_FLAGS *= *//p; s/^CUDA_FLAGS *= */nvcc /p" |
        sed -E "s# ?-(include|isystem) [^ ]+##g" | sort | paste -sd ';')
    eigen_version=$(grep -hoE 'EIGEN_(WORLD|MAJOR|MINOR)_VERSION [0-9]+' \
        "$eigen/Eigen/src/Core/util/Macros.h" | awk '{print $2}' | paste -sd.)
    [[ $device == cpu ]] || compiler+=", nvcc $("$nvcc" --version | sed -n 's/.*, V//p')"
    "$venv/bin/python" - "$work/new/build.json" "$VERSION" "$compiler" "$flags" \
        "$eigen_version" "$blas_name" "$cuda_folder" <<'PY'
import json, pathlib, sys
path, *values = sys.argv[1:]
names = ("dynet", "compiler", "flags", "eigen", "blas", "cuda_libraries")
facts = {name: value for name, value in zip(names, values, strict=True) if value}
pathlib.Path(path).write_text(json.dumps(facts, indent=1) + "\n")
PY
}

# Compile the benchmark's C++ code next to the DyNet in a directory.
compile_programs() {
    local python=$1 folder=$2 sources="$root/systems/on_dynet"
    if [[ ! -d $work/src/dynet ]]; then # headers are needed, even if the build directory was removed
        make_venv "$python"
        unpack_source
    fi
    compile_library "$folder/libdynet_programs.so" "$sources"/cpp/programs/*.cc
    compile_library "$folder/libdynet_product_signature.so" "$sources"/patches/product_signature.cc
    if [[ $device == cpu ]]; then # as optimized as its other libraries here
        step "applying gather_clock.diff" patch -d "$work/src" -p1 -o "$work/exec.cc" \
            -i "$sources/patches/gather_clock.diff"
        compile_library "$folder/libdynet_gather_clock.so" -O3 -funroll-loops -DNDEBUG "$work/exec.cc"
    fi
    PYTHONPATH=$root "$python" -m dynbatch.systems.on_dynet.build "$folder" # writes the hash of the sources
}

compile_library() {
    local library=$1 eigen
    shift
    eigen=$(package_folder '*cmeel.prefix/include/eigen3')
    # -std and -march are DyNet's, because they determine the memory layout of Eigen's values.
    step "compiling ${library##*/}" g++ -std=$standard -O2 -march=native -DEIGEN_FAST_MATH \
        -fPIC -shared -Wall -Werror=return-type -I"$work/src" -isystem "$eigen" "$@" \
        -o "$library.new" -L"${library%/*}" -ldynet '-Wl,-rpath,$ORIGIN'
    mv "$library.new" "$library"
}

programs_are_there() {
    PYTHONPATH=$root "$1" -c '
import sys
from dynbatch.systems.on_dynet.build import explain_missing_build
sys.exit(explain_missing_build(sys.argv[1]) is not None)' "$device" >/dev/null 2>&1
}

main() {
    local python
    [[ $device == cpu || $device == cuda ]] || fail "DEVICE=$device: expected cpu or cuda"
    [[ $blas =~ ^(openblas|mkl|eigen)$ ]] || fail "BLAS=$blas: expected openblas, mkl or eigen"
    python=$(find_python)
    local is_there=false
    if [[ ${1:-} != --force ]] && [[ -f $target/build.json ]] && works "$python" "$target"; then
        is_there=true
        say "DyNet $VERSION is already in $target (rebuild with --force)"
        programs_are_there "$python" && return
    fi
    command -v g++ >/dev/null || fail "g++ not found; install a C++ compiler (Debian: apt install g++)"
    command -v make >/dev/null || fail "make not found; install it (Debian: apt install make)"
    mkdir -p "$work"
    : >"$log"
    if $is_there; then
        compile_programs "$python" "$target"
        say "the benchmark's programs are in $target"
        return
    fi
    make_venv "$python"
    [[ $device == cpu ]] || prepare_cuda
    unpack_source
    local eigen
    eigen=$(package_folder '*cmeel.prefix/include/eigen3')
    [[ -n $eigen ]] || fail "Eigen was not installed; see $log"
    [[ $blas == eigen ]] || prepare_blas "$eigen"
    compile "$eigen"
    describe "$eigen"
    works "$python" "$work/new" || fail "DyNet was built but does not run in $python; see $log"
    compile_programs "$python" "$work/new"
    rm -rf "$target"
    mv "$work/new" "$target"
    say "DyNet $VERSION is in $target"
}

main "$@"
