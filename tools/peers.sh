# shellcheck shell=bash
# Sourced by bootstrap.sh. measure_peers: which products other libraries add in int16. tools/peers.py measures.

readonly measured_peers=(onnxruntime openvino litert onednn xnnpack ggml torch)
# What Debian sid's libraries need, so that they run beside this machine's C library.
readonly sid_runtime=(libc6 libstdc++6 libgcc-s1 libgomp1)

# make_peer NAME VERSION FOLDER PREFIX: the newest version that can be had, or VERSION ("==1.2.3", only of PyPI), in FOLDER: bin/python
# has the library, or NAME.so is the plug-in. usr has packages of Debian sid. PREFIX: of an installed oneDNN, instead of sid's.
make_peer() {
  local name=$1 version=$2 folder=$3 prefix=$4 error='' libraries=(-ldnnl)
  rm -rf "$folder/usr"
  case $name in
    onnxruntime) make_environment "$folder" --upgrade cffi numpy onnx "onnxruntime$version" ;;
    openvino) make_environment "$folder" --upgrade cffi numpy "openvino$version" ;;
    litert) make_environment "$folder" --upgrade cffi numpy flatbuffers "ai-edge-litert$version" ;;
    torch) make_environment "$folder" --upgrade cffi numpy "torch$version" ;;
    ggml)
      make_environment "$folder" --upgrade cffi numpy
      error=$(unpack_debian sid "$folder" usr/lib/x86_64-linux-gnu/libggml.so.0 libggml0 "${sid_runtime[@]}") || miss "ggml: $error"
      ;;
    onednn)
      [[ $prefix ]] || error=$(unpack_debian sid "$folder" usr/include/dnnl.h 'libdnnl3*' libdnnl-dev "${sid_runtime[@]}") ||
        miss "oneDNN: $error"
      ;;
    xnnpack)
      libraries=(-lXNNPACK -lpthreadpool -lcpuinfo)
      error=$(unpack_debian sid "$folder" usr/include/xnnpack.h 'libxnnpack0*' libxnnpack-dev libpthreadpool0 libpthreadpool-dev \
        libcpuinfo0 libcpuinfo-dev "${sid_runtime[@]}") || miss "XNNPACK: $error"
      ;;
  esac
  [[ ! -f peers/$name.cc ]] || make_plug_in "$name" "$folder" "${prefix:-$folder/usr}" "${libraries[@]}"
}

# make_plug_in NAME FOLDER PREFIX LIBRARY...: FOLDER/NAME.so, linked with libraries of PREFIX; FOLDER/library is the first one. Macros are as in peers/CMakeLists.txt.
make_plug_in() {
  local name=$1 folder=$2 prefix=$3 found
  mkdir -p "$folder"
  found=$(find "$prefix/" -name "lib${4#-l}.so" -print -quit)
  [[ $found && -d $prefix/include ]] || miss "$prefix: has no lib${4#-l}.so or no include"
  g++ -std=c++20 -O2 -fPIC -shared -fopenmp -DINTACT_XNNPACK_RESHAPES -I. -Iinclude -I"$prefix/include" "peers/$name.cc" -o "$folder/$name.so" \
    -L"${found%/*}" -Wl,-rpath,"$(realpath "${found%/*}")" -Wl,--allow-shlib-undefined "${@:4}" ||
    fail "peers/$name.cc cannot be built for $prefix"
  ln -sfn "$(realpath "$found")" "$folder/library"
}

# measure_peers [--time TIME] [--out FOLDER] [--onednn PREFIX] [NAME[==VERSION]...]
measure_peers() {
  local peer name prefix='' folder out=report/peers end='' wanted=() left_out=() rest status
  local -A seconds=([s]=1 [min]=60 [h]=3600)
  while (($#)); do
    case $1 in
      --time | --out | --onednn) (($# > 1)) || refuse "$1: has no value" ;;&
      --time)
        [[ $2 =~ ^([0-9]+)(s|min|h)?$ ]] || refuse "--time: is '$2'; expected seconds, or a number with s, min or h"
        end=$((SECONDS + 10#${BASH_REMATCH[1]} * ${seconds[${BASH_REMATCH[2]:-s}]}))
        shift
        ;;
      --out) out=$2; shift ;;
      --onednn) [[ -d $2 ]] || refuse "--onednn: '$2' is no folder; expected an installed prefix"; prefix=$2; shift ;;
      *)
        [[ " ${measured_peers[*]} " == *" ${1%%=*} "* ]] ||
          refuse "'$1': is no peer; expected --time, --out, --onednn, or some of: ${measured_peers[*]}"
        [[ $1 != *=* || $1 =~ ^(onnxruntime|openvino|litert|torch)==[0-9] ]] ||
          refuse "'$1': expected no version (Debian sid has one), or of PyPI's libraries NAME==VERSION"
        wanted+=("$1")
        ;;
    esac
    shift
  done
  ((${#wanted[@]})) || wanted=("${measured_peers[@]}")
  [[ ! $prefix || " ${wanted[*]} " == *' onednn '* ]] || refuse "--onednn: the peers are '${wanted[*]}'; expected onednn among them"
  install_packages "${testing[@]}" python3-venv qemu-user
  build release --target intact intact_python_stage
  for peer in "${wanted[@]}"; do
    name=${peer%%=*} folder=$root/build/peers/${peer%%=*}
    [[ $name != onednn || ! $prefix ]] || folder=$root/build/peers/onednn_prefix
    if [[ $end ]] && ((SECONDS >= end)); then left_out+=("$peer: the time of --time was over"); continue; fi
    say "$peer: making $folder"
    status=0
    (make_peer "$name" "${peer#"$name"}" "$folder" "$([[ $name != onednn ]] || echo "$prefix")") || status=$?
    if ((status)); then left_out+=("$peer: could not be had"); continue; fi
    rest=${end:+--time=$((end - SECONDS))}
    /usr/bin/python3 tools/peers.py "$name" "$folder" --out "$out" ${rest:+"$rest"} || left_out+=("$peer: some of its measurements")
  done
  for peer in "${left_out[@]}"; do say "LEFT OUT: $peer"; done
  ((${#left_out[@]} == 0)) || stop 3 "${#left_out[@]} of ${#wanted[@]} peers were not measured completely"
}
