// The calls of XNNPACK's operators, for xnnpack.cc. XNNPACK has no version numbers, and its API changed in
// 2023; this header hides all differences.
//
//                    2022 (Debian 12)                   2024 (Debian 13), INTACT_XNNPACK_RESHAPES
//   create           arguments, flags                   also a code cache and a weights cache: nullptr here
//   reshape          no such call                       shape, thread pool; returns a workspace's size
//   setup            shape, pointers, thread pool       pointers
//   s8 per channel   qc8                                qs8_qc8w
#ifndef INTACT_PEERS_XNNPACK_API_H_
#define INTACT_PEERS_XNNPACK_API_H_

#include <cpuinfo.h>
#include <xnnpack.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace intact::xnnpack {

/// The functions of an operator. `Reshape` is std::nullptr_t if XNNPACK has no reshape calls.
template <class Create, class Reshape, class Setup>
struct Calls {
  const char* name;
  Create create;
  Reshape reshape;
  Setup setup;
};
template <class Create, class Reshape, class Setup>
Calls(const char*, Create, Reshape, Setup) -> Calls<Create, Reshape, Setup>;

#ifdef INTACT_XNNPACK_RESHAPES
#define INTACT_XNNPACK_CALLS(name) \
  Calls { #name, xnn_create_##name, xnn_reshape_##name, xnn_setup_##name }
#else
#define INTACT_XNNPACK_CALLS(name) \
  Calls { #name, xnn_create_##name, nullptr, xnn_setup_##name }
#endif

inline constexpr auto kFullyConnectedQu8 = INTACT_XNNPACK_CALLS(fully_connected_nc_qu8);
inline constexpr auto kFullyConnectedQs8 = INTACT_XNNPACK_CALLS(fully_connected_nc_qs8);
inline constexpr auto kConvolutionQu8 = INTACT_XNNPACK_CALLS(convolution2d_nhwc_qu8);
inline constexpr auto kConvolutionQs8 = INTACT_XNNPACK_CALLS(convolution2d_nhwc_qs8);
#ifdef INTACT_XNNPACK_RESHAPES
inline constexpr auto kConvolutionQc8 = INTACT_XNNPACK_CALLS(convolution2d_nhwc_qs8_qc8w);
#else
inline constexpr auto kConvolutionQc8 = INTACT_XNNPACK_CALLS(convolution2d_nhwc_qc8);
#endif
inline constexpr auto kDeconvolutionQu8 = INTACT_XNNPACK_CALLS(deconvolution2d_nhwc_qu8);
inline constexpr auto kDeconvolutionQs8 = INTACT_XNNPACK_CALLS(deconvolution2d_nhwc_qs8);
#undef INTACT_XNNPACK_CALLS

/// Memory that an operator computes in. It must live until the operator has run.
class Workspace {
 public:
  /// A buffer of `bytes` that begins at a multiple of `alignment`, a power of two.
  void* Allocate(size_t bytes, size_t alignment) {
    size_t space = bytes + alignment;
    buffer_ = std::make_unique<std::byte[]>(space);
    void* begin = buffer_.get();
    return std::align(alignment, bytes, begin, space);
  }

 private:
  std::unique_ptr<std::byte[]> buffer_;
};

/// Creates an operator. `arguments`: all arguments of its create call before the flags.
template <class Operator, class... Arguments>
xnn_status Create(const Operator& calls, xnn_operator_t* made, Arguments... arguments) {
#ifdef INTACT_XNNPACK_RESHAPES
  return calls.create(arguments..., 0, nullptr, nullptr, made);
#else
  return calls.create(arguments..., 0, made);
#endif
}

/// Sets up a fully connected operator for `rows` rows.
template <class Operator, class T>
xnn_status SetUpRows(const Operator& calls, xnn_operator_t made, size_t rows, const T* a, T* c,
                     pthreadpool_t pool) {
#ifdef INTACT_XNNPACK_RESHAPES
  const xnn_status status = calls.reshape(made, rows, pool);
  return status == xnn_status_success ? calls.setup(made, a, c) : status;
#else
  return calls.setup(made, rows, a, c, pool);
#endif
}

/// Sets up a convolution.
template <class Operator, class T>
xnn_status SetUpConvolution(const Operator& calls, xnn_operator_t made, const std::array<size_t, 3>& extents,
                            const T* a, T* c, pthreadpool_t pool, [[maybe_unused]] Workspace* workspace) {
  const auto [batch, height, width] = extents;
#ifdef INTACT_XNNPACK_RESHAPES
  size_t bytes = 0, alignment = 1;
  const xnn_status status =
      calls.reshape(made, batch, height, width, &bytes, &alignment, nullptr, nullptr, pool);
  if (status != xnn_status_success) return status;
  return calls.setup(made, workspace->Allocate(bytes, alignment), a, c);
#else
  return calls.setup(made, batch, height, width, a, c, pool);
#endif
}

/// Sets up a deconvolution. `adjustments`: pixels to add to the output's height and width.
template <class Operator, class T>
xnn_status SetUpDeconvolution(const Operator& calls, xnn_operator_t made,
                              const std::array<size_t, 3>& extents,
                              const std::array<uint32_t, 2>& adjustments, const T* a, T* c,
                              pthreadpool_t pool) {
  const auto [batch, height, width] = extents;
#ifdef INTACT_XNNPACK_RESHAPES
  const xnn_status status =
      calls.reshape(made, batch, height, width, adjustments[0], adjustments[1], nullptr, nullptr, pool);
  return status == xnn_status_success ? calls.setup(made, a, c) : status;
#else
  return calls.setup(made, batch, height, width, adjustments[0], adjustments[1], a, c, pool);
#endif
}

/// Clears cpuinfo's flags that XNNPACK reads for instructions newer than Skylake-X. cpuinfo of 2022 does not
/// have all these flags.
template <class Isa>
void RemoveNewerThanSkx(Isa* isa) {
  isa->avx512vbmi = isa->avx512vnni = isa->avx512bf16 = isa->gfni = false;
  if constexpr (requires { isa->avxvnni; }) isa->avxvnni = false;
  if constexpr (requires { isa->avx_vnni_int8; }) isa->avx_vnni_int8 = false;
  if constexpr (requires { isa->avx512fp16; }) isa->avx512fp16 = false;
  if constexpr (requires { isa->amx_int8; }) isa->amx_int8 = isa->amx_tile = false;
}

}  // namespace intact::xnnpack
#endif  // INTACT_PEERS_XNNPACK_API_H_
