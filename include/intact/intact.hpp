/// @file
/// C++20 wrapper over intact.h: move-only handles and views, header-only. intact.h describes the contract:
/// arithmetic, limits, lifetime and errors. Every call that can fail returns an Error or a Result. No
/// function throws. Exception: std::bad_alloc, if memory runs out for an error message or for the bytes of
/// SaveMemory().
#ifndef INTACT_INTACT_HPP_
#define INTACT_INTACT_HPP_

#include <intact/intact.h>

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <intact/result.hpp>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/// The library. Everything in `detail` is private.
namespace intact {

/// A row-major matrix that the caller owns.
template <class T>
struct MatrixView {
  T* data = nullptr;    ///< the first element
  int64_t rows = 0;     ///< rows
  int64_t columns = 0;  ///< columns
  int64_t stride = 0;   ///< elements between rows

  MatrixView() = default;
  /// A dense matrix of `r` rows and `c` columns at `d`.
  MatrixView(T* d, int64_t r, int64_t c) : data(d), rows(r), columns(c), stride(c) {}
  /// A matrix with `s` elements between rows.
  MatrixView(T* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), columns(c), stride(s) {}
};

/// The items of a batch: matrices of one shape that the caller owns.
template <class T>
struct BatchView {
  MatrixView<T> first;  ///< the first item
  int64_t items = 1;    ///< number of items
  int64_t step = 0;     ///< elements from an item to the next; 0 = rows × stride
};

/// A bfloat16.
struct Bfloat16 {
  uint16_t bits = 0;  ///< the upper half of a float's bits
};

/// A float16.
struct Float16 {
  uint16_t bits = 0;  ///< IEEE 754 binary16
};

/// The intact_type of T; other types do not compile.
template <class T>
inline constexpr intact_type kTypeOf = kTypeOf<std::remove_const_t<T>>;
/// \copydoc kTypeOf
template <>
inline constexpr intact_type kTypeOf<uint8_t> = INTACT_U8;
/// \copydoc kTypeOf
template <>
inline constexpr intact_type kTypeOf<int8_t> = INTACT_S8;
/// \copydoc kTypeOf
template <>
inline constexpr intact_type kTypeOf<int32_t> = INTACT_S32;
/// \copydoc kTypeOf
template <>
inline constexpr intact_type kTypeOf<float> = INTACT_F32;
/// \copydoc kTypeOf
template <>
inline constexpr intact_type kTypeOf<Bfloat16> = INTACT_BF16;
/// \copydoc kTypeOf
template <>
inline constexpr intact_type kTypeOf<Float16> = INTACT_F16;

/// Pixels that the caller owns, channels innermost (NWC, NHWC, NDHWC).
template <class T>
struct PixelView {
  T* data = nullptr;  ///< the first channel of the first pixel
  int64_t batch = 1;  ///< images
  /// Extents, outermost first; entries beyond the convolution's spatial dimensions are not read.
  std::array<int64_t, INTACT_MAX_SPATIAL> extents = {1, 1, 1};
  int64_t channels = 0;  ///< channels of a pixel
  int64_t stride = 0;    ///< elements between adjacent pixels; 0 = channels
};

/// The descriptor of a GEMM and its arithmetic.
struct GemmDesc : intact_gemm_desc {
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;  ///< types, zero points, scales, …
};
/// Defaults: u8×s8→s32, exact, the best ISA; set n and k.
inline GemmDesc MakeGemmDesc() { return {INTACT_GEMM_DESC_INIT}; }

/// The descriptor of a convolution and its arithmetic.
struct ConvDesc : intact_conv_desc {
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;  ///< types, zero points, scales, …
};
/// Defaults: u8×s8→s32, exact, the best ISA, two spatial dimensions; set channels, input and kernel.
inline ConvDesc MakeConvDesc() { return {INTACT_CONV_DESC_INIT}; }

/// Options of a run, see intact_gemm_args. Convolutions read only the fields up to a_scales.
struct RunOptions {
  int threads = 0;                         ///< 0: OpenMP's default
  void* scratch = nullptr;                 ///< memory for the run to work in
  size_t scratch_bytes = 0;                ///< bytes of `scratch`
  const int32_t* a_zero_points = nullptr;  ///< zero points of A's rows, or of A
  const float* a_scales = nullptr;         ///< scales of A's rows, or of A
  const float* b_scales = nullptr;         ///< scales of B's items
  const int32_t* b_zero_points = nullptr;  ///< zero points of B's items
  int64_t b_scale_count = 0;               ///< scales of each item: 1 or n; 0 = 1, or none
  int64_t b_zero_point_count = 0;          ///< zero points of each item: 1 or n; 0 = 1, or none
  bool a_transposed = false;               ///< A is k×m
};

class Gemm;
class Conv;

/// @cond private
namespace detail {

/// The error of this thread's last call, which returned `status`. A failure always has a message.
inline Error LastError(intact_status status) {
  if (status == INTACT_OK) return {};
  const char* const message = intact_last_error();
  return {status, *message != '\0' ? message : intact_status_name(status)};
}

// Checks of views. A check that fails sets `*error` and returns false. A check that succeeds only compares
// numbers. Names become strings only in a message.

inline bool Refuse(std::string message, Error* error) {
  *error = {INTACT_INVALID_ARGUMENT, std::move(message)};
  return false;
}

inline bool RefuseType(const char* view, int32_t type, int32_t wanted, Error* error) {
  const auto name = [](int32_t t) {
    return t == INTACT_U8     ? "uint8_t"
           : t == INTACT_S8   ? "int8_t"
           : t == INTACT_S32  ? "int32_t"
           : t == INTACT_F32  ? "float"
           : t == INTACT_BF16 ? "Bfloat16"
           : t == INTACT_F16  ? "Float16"
                              : "none";
  };
  return Refuse(std::string(view) + " has elements of type " + name(type) + "; expected " + name(wanted),
                error);
}

inline bool RefuseExtent(const char* what, int64_t value, const char* least, int64_t wanted, Error* error) {
  return Refuse(
      std::string(what) + " is " + std::to_string(value) + "; expected " + least + std::to_string(wanted),
      error);
}

inline bool RefuseExtent(const char* view, size_t i, int64_t value, const char* least, int64_t wanted,
                         Error* error) {
  const std::string what = std::string(view) + "'s extent " + std::to_string(i);
  return RefuseExtent(what.c_str(), value, least, wanted, error);
}

/// Checks that a view has the plan's element type.
inline bool HasType(const char* view, int32_t type, int32_t wanted, Error* error) {
  return type == wanted || RefuseType(view, type, wanted, error);
}

inline bool HasExtent(const char* what, int64_t value, int64_t wanted, Error* error) {
  return value == wanted || RefuseExtent(what, value, "", wanted, error);
}

/// Checks extent `i` of a view of pixels.
inline bool HasExtent(const char* view, size_t i, int64_t value, int64_t wanted, Error* error) {
  return value == wanted || RefuseExtent(view, i, value, "", wanted, error);
}

/// Checks that extent `i` of a view of pixels is not 0. In intact_conv_args 0 means the descriptor's extent.
inline bool IsNotEmpty(const char* view, size_t i, int64_t value, Error* error) {
  return value >= 1 || RefuseExtent(view, i, value, "at least ", 1, error);
}

inline void SetOptions(const RunOptions& options, auto* args) {
  args->threads = options.threads;
  args->scratch = options.scratch;
  args->scratch_bytes = options.scratch_bytes;
}

}  // namespace detail
/// @endcond

/// What plans of all kinds have: the base class of Gemm, Conv and Grouped. Errors and lifetimes are those of the
/// calls of the C ABI, for example of intact_gemm_load().
///
/// Move-only; a moved-from plan may only be assigned to or destroyed. Immutable except during Tune(): many
/// threads may call Run() at once.
template <class Calls>
class Plan {
 public:
  using Made = typename Calls::Plan;      ///< Gemm, Conv or Grouped
  using Handle = typename Calls::Handle;  ///< the plan of the C ABI
  using Args = typename Calls::Args;      ///< the arguments of a run

  /// Creates a plan from a file that Save() wrote, on this or another machine. The file must not change while
  /// the plan lives.
  static Result<Made> Load(const std::string& path, int32_t max_isa = INTACT_ISA_ANY) {
    Handle* handle = nullptr;
    return Adopt(Calls::kLoad(path.c_str(), max_isa, &handle), &handle);
  }
  /// Creates a plan from memory. For a Gemm, `data` must be aligned to 64 bytes, and must stay valid and
  /// unchanged while the plan lives. Other plans need neither.
  static Result<Made> LoadMemory(const void* data, size_t size, int32_t max_isa = INTACT_ISA_ANY) {
    Handle* handle = nullptr;
    return Adopt(Calls::kLoadMemory(data, size, max_isa, &handle), &handle);
  }
  /// Writes the plan; the file appears whole or not at all.
  Error Save(const std::string& path) const {
    return detail::LastError(Calls::kSave(handle_.get(), path.c_str()));
  }
  /// The bytes that Save() writes.
  Result<std::vector<uint8_t>> SaveMemory() const {
    size_t size = 0;
    Error error = detail::LastError(Calls::kSaveMemory(handle_.get(), nullptr, &size));
    if (!error.ok()) return error;
    std::vector<uint8_t> bytes(size);
    error = detail::LastError(Calls::kSaveMemory(handle_.get(), bytes.data(), &size));
    if (!error.ok()) return error;
    return bytes;
  }

  /// Reports what a run needs.
  Result<intact_run_info> Prepare(const Args& args) const {
    intact_run_info info = INTACT_RUN_INFO_INIT;
    Error error = detail::LastError(Calls::kPrepare(handle_.get(), &args, &info));
    if (!error.ok()) return error;
    return info;
  }
  /// A run with arguments of the C ABI; the caller is responsible for element types.
  Error Run(const Args& args) const { return detail::LastError(Calls::kRun(handle_.get(), &args)); }
  /// Part `part` of `parts` of a run, for callers that own their threads.
  Error RunPart(const Args& args, int part, int parts) const {
    return detail::LastError(Calls::kRunPart(handle_.get(), &args, part, parts));
  }

  /// What the plan chose, as of its creation. Later calls may find schedules: see intact_gemm_create().
  const typename Calls::Info& Info() const noexcept { return info_; }
  /// The plan's handle for the C ABI. The handle lives as long as this object.
  const Handle* handle() const noexcept { return handle_.get(); }

 private:
  friend Made;
  Plan() = default;

  /// The plan that a call with this status made.
  static Result<Made> Adopt(intact_status status, Handle** handle) {
    Error error = detail::LastError(status);
    if (!error.ok()) return error;
    Made made;
    made.handle_.reset(*handle);
    error = made.Query();
    if (!error.ok()) return error;
    return made;
  }
  Error Query() { return detail::LastError(Calls::kQuery(handle_.get(), &info_)); }

  struct Destroy {
    void operator()(Handle* handle) const noexcept { Calls::kDestroy(handle); }
  };
  std::unique_ptr<Handle, Destroy> handle_;
  typename Calls::Info info_ = Calls::kInfo;
};

/// @cond private
namespace detail {
struct GemmCalls {
  using Plan = Gemm;
  using Handle = intact_gemm;
  using Args = intact_gemm_args;
  using Info = intact_gemm_info;
  static constexpr Info kInfo = INTACT_GEMM_INFO_INIT;
  static constexpr auto kLoad = intact_gemm_load;
  static constexpr auto kLoadMemory = intact_gemm_load_memory;
  static constexpr auto kSave = intact_gemm_save;
  static constexpr auto kSaveMemory = intact_gemm_save_memory;
  static constexpr auto kPrepare = intact_gemm_prepare;
  static constexpr auto kRun = intact_gemm_run;
  static constexpr auto kRunPart = intact_gemm_run_part;
  static constexpr auto kQuery = intact_gemm_query;
  static constexpr auto kDestroy = intact_gemm_destroy;
};
struct ConvCalls {
  using Plan = Conv;
  using Handle = intact_conv;
  using Args = intact_conv_args;
  using Info = intact_conv_info;
  static constexpr Info kInfo = INTACT_CONV_INFO_INIT;
  static constexpr auto kLoad = intact_conv_load;
  static constexpr auto kLoadMemory = intact_conv_load_memory;
  static constexpr auto kSave = intact_conv_save;
  static constexpr auto kSaveMemory = intact_conv_save_memory;
  static constexpr auto kPrepare = intact_conv_prepare;
  static constexpr auto kRun = intact_conv_run;
  static constexpr auto kRunPart = intact_conv_run_part;
  static constexpr auto kQuery = intact_conv_query;
  static constexpr auto kDestroy = intact_conv_destroy;
};
}  // namespace detail
/// @endcond

/// A plan of a GEMM: C = Requantize(A·B + bias).
///
/// Move-only; a moved-from Gemm may only be assigned to or destroyed. Immutable except during Tune(): many
/// threads may call Run() at once. Dimensions and strides are in elements.
class Gemm : public Plan<detail::GemmCalls> {
 public:
  /// Copies and packs `b`; desc.b_stride_k and desc.b_stride_n describe its layout. `b` is null with
  /// desc.runtime_b. Keeps no pointer to the caller's memory. Errors: see intact_gemm_create().
  static Result<Gemm> Create(const GemmDesc& desc, const void* b) {
    intact_gemm* handle = nullptr;
    return Adopt(intact_gemm_create(&desc, &desc.linear, b, &handle), &handle);
  }

  using Plan::Prepare;
  using Plan::Run;
  using Plan::RunPart;

  /// Chooses the fastest kernel for runs of `m` rows by measurement: see intact_gemm_tune(). No other thread
  /// may be using the Gemm.
  Result<intact_tune_info> Tune(int64_t m, double milliseconds = 10) {
    intact_tune_info info = INTACT_TUNE_INFO_INIT;
    Error error = detail::LastError(intact_gemm_tune(handle_.get(), m, milliseconds, &info));
    if (!error.ok()) return error;
    return info;
  }

  /// Reports what a run of `m` rows needs. With options.a_transposed, `m` is the number of columns of `a`.
  /// Errors: see intact_gemm_prepare().
  Result<intact_run_info> Prepare(int64_t m, const RunOptions& options = {}) const {
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = m;
    args.a_transposed = options.a_transposed ? 1 : 0;
    detail::SetOptions(options, &args);
    return Prepare(args);
  }

  /// Computes `c` (m×n of the plan's c_type) from `a` (m×k of the plan's a_type or a_source_type; k×m with
  /// options.a_transposed). `a` and `c` must not overlap. Errors: a view whose shape or element type does not
  /// fit the plan, and the errors of intact_gemm_run().
  template <class A, class C>
  Error Run(MatrixView<const A> a, MatrixView<C> c, const RunOptions& options = {}) const {
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    Error error;
    return Arguments(a, c, options, &args, &error) ? Run(args) : error;
  }

  /// Run() for each item of a batch; `a` and `c` have the same number of items. Without items, Run() does
  /// nothing.
  template <class A, class C>
  Error Run(const BatchView<const A>& a, const BatchView<C>& c, const RunOptions& options = {}) const {
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    Error error;
    return Arguments(a, c, options, &args, &error) ? Run(args) : error;
  }

  /// Run() for a plan with runtime_b. `b` has elements of the plan's b_type, laid out by the descriptor's
  /// strides. `b_step`: elements from an item of B to the next; 0 = n·k.
  template <class A, class C>
  Error Run(const BatchView<const A>& a, const void* b, int64_t b_step, const BatchView<C>& c,
            const RunOptions& options = {}) const {
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.b = b;
    args.b_batch_stride = b_step;
    Error error;
    return Arguments(a, c, options, &args, &error) ? Run(args) : error;
  }

  /// Run() for a plan with a residual: `residual` is m×n of the plan's residual_type, and may be `c` itself.
  template <class A, class C, class R>
  Error Run(MatrixView<const A> a, MatrixView<C> c, MatrixView<const R> residual,
            const RunOptions& options = {}) const {
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    Error error;
    return Arguments(a, c, residual, options, &args, &error) ? Run(args) : error;
  }

  /// Part `part` of `parts` of Run(), for callers that own their threads: see intact_gemm_run_part().
  template <class A, class C>
  Error RunPart(MatrixView<const A> a, MatrixView<C> c, int part, int parts,
                const RunOptions& options = {}) const {
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    Error error;
    return Arguments(a, c, options, &args, &error) ? RunPart(args, part, parts) : error;
  }

  /// Part `part` of `parts` of Run() with a residual.
  template <class A, class C, class R>
  Error RunPart(MatrixView<const A> a, MatrixView<C> c, MatrixView<const R> residual, int part, int parts,
                const RunOptions& options = {}) const {
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    Error error;
    return Arguments(a, c, residual, options, &args, &error) ? RunPart(args, part, parts) : error;
  }

  /// Which weights can make VPMADDUBSW saturate. The argument does not matter: a GEMM has the same pairs with
  /// each intact_pairing. Errors: see intact_gemm_certificate().
  Result<intact_certificate> Certificate(int32_t /*pairing*/ = INTACT_PAIRING_WITHIN_TAP) const {
    intact_certificate certificate = INTACT_CERTIFICATE_INIT;
    Error error = detail::LastError(intact_gemm_certificate(handle_.get(), &certificate));
    if (!error.ok()) return error;
    return certificate;
  }

 private:
  friend Plan;
  Gemm() = default;

  // These set `args`, or set `*error` and return false.
  template <class A, class C>
  bool Arguments(MatrixView<const A> a, MatrixView<C> c, const RunOptions& options, intact_gemm_args* args,
                 Error* error) const {
    const bool is_dynamic = info_.a_source_type != INTACT_TYPE_NONE;
    const char* const depths = options.a_transposed ? "the number of a's rows" : "the number of a's columns";
    const int64_t k = options.a_transposed ? a.rows : a.columns;
    const int64_t m = options.a_transposed ? a.columns : a.rows;
    if (!detail::HasType("a", kTypeOf<A>, is_dynamic ? info_.a_source_type : info_.a_type, error) ||
        !detail::HasType("c", kTypeOf<C>, info_.c_type, error) ||
        !detail::HasExtent(depths, k, info_.k, error) ||
        !detail::HasExtent("the number of c's columns", c.columns, info_.n, error) ||
        !detail::HasExtent("the number of c's rows", c.rows, m, error)) {
      return false;
    }
    args->a_transposed = options.a_transposed ? 1 : 0;
    args->m = m;
    args->a = a.data;
    args->a_stride = a.stride;
    args->c = c.data;
    args->c_stride = c.stride;
    detail::SetOptions(options, args);
    args->a_zero_points = options.a_zero_points;
    args->a_scales = options.a_scales;
    args->b_scales = options.b_scales;
    args->b_zero_points = options.b_zero_points;
    args->b_scale_count = options.b_scale_count;
    args->b_zero_point_count = options.b_zero_point_count;
    return true;
  }

  template <class A, class C>
  bool Arguments(const BatchView<const A>& a, const BatchView<C>& c, const RunOptions& options,
                 intact_gemm_args* args, Error* error) const {
    args->batch = a.items;
    args->a_batch_stride = a.step;
    args->c_batch_stride = c.step;
    return detail::HasExtent("the number of c's items", c.items, a.items, error) &&
           (a.items >= 0 ||
            detail::Refuse("the number of a's items is " + std::to_string(a.items) + "; expected 0 or more",
                           error)) &&
           Arguments(a.first, c.first, options, args, error);
  }

  template <class A, class C, class R>
  bool Arguments(MatrixView<const A> a, MatrixView<C> c, MatrixView<const R> residual,
                 const RunOptions& options, intact_gemm_args* args, Error* error) const {
    args->residual = residual.data;
    args->residual_stride = residual.stride;
    return detail::HasType("residual", kTypeOf<R>, info_.residual_type, error) &&
           detail::HasExtent("the number of residual's rows", residual.rows, c.rows, error) &&
           detail::HasExtent("the number of residual's columns", residual.columns, c.columns, error) &&
           Arguments(a, c, options, args, error);
  }
};

/// A plan of a convolution: see intact_conv_desc for shapes and layouts.
///
/// Move-only; a moved-from Conv may only be assigned to or destroyed. Immutable except during Tune(): many
/// threads may call Run() at once.
class Conv : public Plan<detail::ConvCalls> {
 public:
  /// Copies and packs `weights`, dense in the layout of intact_conv_desc. Keeps no pointer to the caller's
  /// memory. Errors: see intact_conv_create().
  static Result<Conv> Create(const ConvDesc& desc, const void* weights) {
    intact_conv* handle = nullptr;
    return Adopt(intact_conv_create(&desc, &desc.linear, weights, &handle), &handle);
  }

  using Plan::Prepare;
  using Plan::Run;
  using Plan::RunPart;

  /// Chooses the fastest way to compute inputs of these extents by measurement: see intact_conv_tune().
  /// Extents are required where the plan has INTACT_ANY_EXTENT. No other thread may be using the Conv.
  Result<intact_tune_info> Tune(const std::array<int64_t, INTACT_MAX_SPATIAL>& extents = {},
                                double milliseconds = 10) {
    intact_tune_info info = INTACT_TUNE_INFO_INIT;
    Error error = detail::LastError(intact_conv_tune(handle_.get(), extents.data(), milliseconds, &info));
    if (error.ok()) error = Query();
    if (!error.ok()) return error;
    return info;
  }

  /// Prepares runs of `batch` inputs of these extents. Extents are required where the plan has
  /// INTACT_ANY_EXTENT. Reports the scratch that the runs need, and the extents of the output. Errors: see
  /// intact_conv_prepare().
  Result<intact_run_info> Prepare(int64_t batch, const std::array<int64_t, INTACT_MAX_SPATIAL>& extents = {},
                                  const RunOptions& options = {}) const {
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    args.batch = batch;
    for (size_t i = 0; i < extents.size(); ++i) args.input[i] = extents[i];
    detail::SetOptions(options, &args);
    return Prepare(args);
  }

  /// Computes `c` from `a`. Both have the plan's types and channels, and must not overlap. Errors: a view
  /// whose shape or element type does not fit the plan, and the errors of intact_conv_run().
  template <class A, class C>
  Error Run(const PixelView<const A>& a, const PixelView<C>& c, const RunOptions& options = {}) const {
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    Error error;
    return Arguments(a, c, options, &args, &error) ? Run(args) : error;
  }

  /// Run() for a plan with a residual. `residual` has the shape of `c`, and may be `c` itself.
  template <class A, class C, class R>
  Error Run(const PixelView<const A>& a, const PixelView<C>& c, const PixelView<const R>& residual,
            const RunOptions& options = {}) const {
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    Error error;
    return Arguments(a, c, options, &args, &error) && AddResidual(residual, c, &args, &error) ? Run(args)
                                                                                              : error;
  }

  /// Part `part` of `parts` of Run(), for callers that own their threads: see intact_conv_run_part().
  template <class A, class C>
  Error RunPart(const PixelView<const A>& a, const PixelView<C>& c, int part, int parts,
                const RunOptions& options = {}) const {
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    Error error;
    return Arguments(a, c, options, &args, &error) ? RunPart(args, part, parts) : error;
  }

  /// Part `part` of `parts` of Run() with a residual.
  template <class A, class C, class R>
  Error RunPart(const PixelView<const A>& a, const PixelView<C>& c, const PixelView<const R>& residual,
                int part, int parts, const RunOptions& options = {}) const {
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    Error error;
    return Arguments(a, c, options, &args, &error) && AddResidual(residual, c, &args, &error)
               ? RunPart(args, part, parts)
               : error;
  }

  /// Which weights can make VPMADDUBSW saturate in the pairs of `pairing`, an intact_pairing. Errors: see
  /// intact_conv_certificate().
  Result<intact_certificate> Certificate(int32_t pairing) const {
    intact_certificate certificate = INTACT_CERTIFICATE_INIT;
    Error error = detail::LastError(intact_conv_certificate(handle_.get(), pairing, &certificate));
    if (!error.ok()) return error;
    return certificate;
  }

 private:
  friend Plan;
  Conv() = default;

  // These set `args`, or set `*error` and return false.
  template <class A, class C>
  bool Arguments(const PixelView<const A>& a, const PixelView<C>& c, const RunOptions& options,
                 intact_conv_args* args, Error* error) const {
    const bool is_dynamic = info_.a_source_type != INTACT_TYPE_NONE;
    if (!detail::HasType("a", kTypeOf<A>, is_dynamic ? info_.a_source_type : info_.a_type, error) ||
        !detail::HasType("c", kTypeOf<C>, info_.c_type, error) ||
        !detail::HasExtent("the number of a's channels", a.channels, info_.input_channels, error) ||
        !detail::HasExtent("the number of c's channels", c.channels, info_.output_channels, error) ||
        !detail::HasExtent("c's batch", c.batch, a.batch, error)) {
      return false;
    }
    // The library checks these extents of the input and the output.
    for (size_t i = 0; i < static_cast<size_t>(info_.spatial_dims); ++i) {
      if (!detail::IsNotEmpty("a", i, a.extents[i], error)) return false;
      if (!detail::IsNotEmpty("c", i, c.extents[i], error)) return false;
      args->input[i] = a.extents[i];
      args->output[i] = c.extents[i];
    }
    args->batch = a.batch;
    args->a = a.data;
    args->a_stride = a.stride;
    args->c = c.data;
    args->c_stride = c.stride;
    detail::SetOptions(options, args);
    args->a_zero_points = options.a_zero_points;
    args->a_scales = options.a_scales;
    return true;
  }

  template <class C, class R>
  bool AddResidual(const PixelView<const R>& residual, const PixelView<C>& c, intact_conv_args* args,
                   Error* error) const {
    args->residual = residual.data;
    args->residual_stride = residual.stride;
    if (!detail::HasType("residual", kTypeOf<R>, info_.residual_type, error) ||
        !detail::HasExtent("the number of residual's channels", residual.channels, c.channels, error) ||
        !detail::HasExtent("residual's batch", residual.batch, c.batch, error)) {
      return false;
    }
    for (size_t i = 0; i < static_cast<size_t>(info_.spatial_dims); ++i) {
      if (!detail::HasExtent("residual", i, residual.extents[i], c.extents[i], error)) return false;
    }
    return true;
  }
};

}  // namespace intact
#endif  // INTACT_INTACT_HPP_
