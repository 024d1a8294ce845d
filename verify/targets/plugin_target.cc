#include "verify/targets/plugin_target.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <malloc.h>
#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "support/printable.h"
#include "verify/targets/features.h"
#include "verify/targets/guarded_grouped.h"
#include "verify/targets/guarded_run.h"

// Static programs have no such symbol.
extern "C" __attribute__((weak))
const char _DYNAMIC[];  // NOLINT(bugprone-reserved-identifier): the linker's name

namespace intact::verify {
namespace {

using Message = std::array<char, INTACT_TARGET_MESSAGE_BYTES>;

// The plug-in's text in `message`, which may lack a terminating 0.
std::string TextOf(const Message& message, const std::string& otherwise) {
  const std::string text(message.data(), strnlen(message.data(), message.size()));
  return text.empty() ? otherwise : support::Excerpt(text);
}

// Floating-point control: rounding, denormals, traps. Callees must preserve it (System V ABI, 3.2.1).
struct FloatControl {
  uint32_t mxcsr = _mm_getcsr() & ~static_cast<uint32_t>(_MM_EXCEPT_MASK);
  int rounding = std::fegetround();
  bool operator==(const FloatControl&) const = default;
};

Error ErrorOf(intact_status status, const Message& message) {
  if (status == INTACT_OK) return {};
  if (status == INTACT_UNSUPPORTED) return {status, TextOf(message, "the target does not run it")};
  return {INTACT_CODEGEN_FAILED, fmt::format("the target failed with status {}: {}", static_cast<int>(status),
                                             TextOf(message, "it gave no reason"))};
}

// Fills the stack as earlier calls would.
[[gnu::noinline]] void ScribbleOnStack(uint8_t byte) {
  std::array<uint8_t, size_t{64} << 10> stack;
  stack.fill(byte);
  asm volatile("" : : "r"(stack.data()) : "memory");  // keeps the compiler from removing it
}

// Fills memory that malloc() returns. M_PERTURB does not reach freed blocks that are reused, so some of each
// small size are freed with `byte` in them.
void ScribbleOnHeap(uint8_t byte) {
  (void)mallopt(M_PERTURB, byte);
  constexpr size_t kLargest = 1040;  // largest block that glibc keeps for the thread
  constexpr size_t kEach = 8;        // glibc keeps seven blocks of each size
  std::array<std::unique_ptr<uint8_t[]>, kEach> blocks;
  for (size_t size = 24; size <= kLargest; size += 16) {
    for (auto& block : blocks) {
      block.reset(new uint8_t[size]);
      std::fill_n(block.get(), size, byte);
    }
    for (auto& block : blocks) block.reset();
  }
}

void Scribble(const Surroundings& surroundings) {
  ScribbleOnHeap(surroundings.canary);
  ScribbleOnStack(surroundings.canary);
}

// Calls `function(message)` of the plug-in.
template <class Call>
Error CallPlugin(const Call& function, Failure* failure) {
  Message message = {};
  const FloatControl before;
  const intact_status status = function(message.data());
  // RunGuarded() may still find a write outside C.
  if (before == FloatControl()) {
    *failure = status == INTACT_OK ? Failure{FailureKind::kStrayWrite}
                                   : Failure{FailureKind::kError, intact_status_name(status)};
    return ErrorOf(status, message);
  }
  *failure = {FailureKind::kFloatControl};
  _mm_setcsr(before.mxcsr);
  std::fesetround(before.rounding);
  return {INTACT_CODEGEN_FAILED, "the target left floating-point control (MXCSR) changed"};
}

// Calls a function of the plug-in, of the operation's kind.
Error CallKernel(decltype(intact_target::gemm) function, const GemmDesc& desc, const void* weights,
                 const intact_gemm_args& args, Failure* failure) {
  return CallPlugin([&](char* message) { return function(&desc, &desc.linear, weights, &args, message); },
                    failure);
}
Error CallKernel(decltype(intact_target::conv) function, const ConvDesc& desc, const void* weights,
                 const intact_conv_args& args, Failure* failure) {
  return CallPlugin([&](char* message) { return function(&desc, &desc.linear, weights, &args, message); },
                    failure);
}
Error CallKernel(decltype(intact_target::grouped) function, const intact_grouped_desc& desc, const void* b,
                 const intact_grouped_args& args, Failure* failure) {
  return CallPlugin([&](char* message) { return function(&desc, b, &args, message); }, failure);
}

// Calls `function`, which is target.gemm, target.conv or target.grouped.
template <class Operation, class Function>
Result<std::vector<uint8_t>> RunPlugin(const Operation& operation, const RunOptions& options,
                                       Function function, Failure* failure) {
  Result<std::vector<uint8_t>> output = Error{};
  Error error = CallGuarded(operation, options, [&](const auto& desc, const void* weights) {
    bool changed = false, is_first = true;
    const auto run = [&](const auto& args) {
      // Other contents of memory are for the first call only: they take longer than a small problem.
      if (std::exchange(is_first, false)) Scribble(options.surroundings);
      return CallKernel(function, desc, weights, args, failure);
    };
    output = RunGuarded(operation, options, run, &changed);
    if (changed) *failure = {FailureKind::kChangesFromRunToRun};
    return output ? Error() : output.error();
  });
  if (!error.ok()) return error;
  return output;
}

// Reads the struct of a plug-in, which may be of another version. Returns what is wrong with it, or "".
std::string ReadTarget(const intact_target* given, intact_target* read) {
  constexpr size_t kMost = 4096;
  const size_t size = given->struct_size;
  // Sizes of earlier versions' structs, and of one that ends before `conv`.
  constexpr std::array kShorter = {offsetof(intact_target, conv), offsetof(intact_target, grouped),
                                   offsetof(intact_target, conv_supports)};
  const bool is_shorter = std::ranges::find(kShorter, size) != kShorter.end();
  if ((size < sizeof *read && !is_shorter) || size > kMost) {
    return fmt::format("its struct_size is {}; expected sizeof(intact_target), {}", size, sizeof *read);
  }
  const auto* const bytes = reinterpret_cast<const uint8_t*>(given);
  for (size_t i = sizeof *read; i < size; ++i) {
    if (bytes[i] != 0)
      return fmt::format("it has byte {} set, beyond the {} that this version knows", i, sizeof *read);
  }
  std::memcpy(read, given, std::min(size, sizeof *read));
  return {};
}

// The mask of an operation, and the field that it is in.
struct Mask {
  std::string_view field;
  uint64_t bits;
  template <class... Features>
  bool Has(Features... features) const {
    return (bits & (INTACT_TARGET_BIT(features) | ...)) != 0;
  }
  bool HasConvs() const { return Has(INTACT_TARGET_CONV_1D, INTACT_TARGET_CONV_2D, INTACT_TARGET_CONV_3D); }
  std::string Fault(std::string_view what) const { return fmt::format("its `{}` has {}", field, what); }
};
Mask GemmMask(const intact_target& target) { return {"supports", target.supports}; }
Mask ConvMask(const intact_target& target) {
  return target.conv_supports == 0 ? GemmMask(target) : Mask{"conv_supports", target.conv_supports};
}
Mask GroupedMask(const intact_target& target) {
  return target.grouped_supports == 0 ? GemmMask(target) : Mask{"grouped_supports", target.grouped_supports};
}

// What is wrong with the mask of an operation that the plug-in has, or "".
std::string WhyNoTypes(const Mask& mask, bool is_grouped) {
  if (!mask.Has(INTACT_TARGET_A_U8, INTACT_TARGET_A_S8)) return mask.Fault("no type of activations");
  const bool has_bytes = mask.Has(INTACT_TARGET_B_U8, INTACT_TARGET_B_S8);
  if (!has_bytes && !mask.Has(INTACT_TARGET_B_U4, INTACT_TARGET_B_S4))
    return mask.Fault("no type of weights");
  if ((mask.bits & OutputFeatures()) == 0) return mask.Fault("no type of outputs");
  if (!is_grouped) return has_bytes ? "" : mask.Fault("GEMMs or convolutions, and no weights of 8 bits");
  if (mask.Has(INTACT_TARGET_ROW_QUANTIZATION, INTACT_TARGET_DYNAMIC_ROWS)) return {};
  return mask.Fault(
      "INTACT_TARGET_GROUPED, and neither INTACT_TARGET_ROW_QUANTIZATION nor INTACT_TARGET_DYNAMIC_ROWS");
}

// What is wrong with a plug-in's description of itself, or "".
std::string WhyNoTarget(const intact_target& target) {
  if (target.name == nullptr) return "its name is NULL";
  const Mask gemm = GemmMask(target), conv = ConvMask(target), grouped = GroupedMask(target);
  for (const Mask& mask : {gemm, conv, grouped}) {
    if (const uint64_t unknown = mask.bits >> INTACT_TARGET_FEATURES; unknown != 0) {
      return mask.Fault(fmt::format("bit {}, which is no feature; the last is {}",
                                    INTACT_TARGET_FEATURES + std::countr_zero(unknown),
                                    INTACT_TARGET_FEATURES - 1));
    }
  }
  const bool has_gemms = gemm.Has(INTACT_TARGET_GEMM), has_convs = conv.HasConvs();
  const bool has_grouped = grouped.Has(INTACT_TARGET_GROUPED);
  if (target.conv_supports != 0 && !has_convs) {
    return conv.Fault("none of INTACT_TARGET_CONV_1D, 2D and 3D");
  }
  if (target.grouped_supports != 0 && !has_grouped) return grouped.Fault("no INTACT_TARGET_GROUPED");
  if (!has_gemms && !has_convs && !has_grouped) {
    return gemm.Fault("none of INTACT_TARGET_GEMM, INTACT_TARGET_CONV_1D, 2D, 3D, and INTACT_TARGET_GROUPED");
  }
  if (has_gemms && target.gemm == nullptr) return gemm.Fault("INTACT_TARGET_GEMM, and gemm is NULL");
  if (has_convs && target.conv == nullptr) return conv.Fault("convolutions, and conv is NULL");
  if (has_grouped && target.grouped == nullptr) {
    return grouped.Fault("INTACT_TARGET_GROUPED, and grouped is NULL");
  }
  std::string why = has_gemms ? WhyNoTypes(gemm, false) : "";
  if (why.empty() && has_convs) why = WhyNoTypes(conv, false);
  if (why.empty() && has_grouped) why = WhyNoTypes(grouped, true);
  return why;
}

}  // namespace

Result<std::unique_ptr<Target>> PluginTarget::Open(const std::string& file, const std::string& options) {
  const auto invalid = [&file](const std::string& what) {
    return Error{INTACT_INVALID_ARGUMENT, fmt::format("{}: {}", file, what)};
  };
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return invalid("no such file");
  if (_DYNAMIC == nullptr)
    return invalid("this program is static, and loads no plug-ins; expected the program of a wheel");
  // dlopen() looks up a name without a folder among the system's libraries.
  const std::filesystem::path path = std::filesystem::absolute(file, error);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return invalid(support::Excerpt(dlerror()));
  using Open = const intact_target* (*)(uint32_t, const char*, char*);
  const auto open = reinterpret_cast<Open>(dlsym(library, "intact_target_open"));
  if (open == nullptr) return invalid("exports no intact_target_open(): see intact/target.h");
  Message message = {};
  const intact_target* target = open(INTACT_TARGET_ABI, options.c_str(), message.data());
  if (target == nullptr) return invalid(TextOf(message, "intact_target_open() returned NULL"));
  intact_target read = {};
  if (const std::string why = ReadTarget(target, &read); !why.empty()) return invalid(why);
  if (const std::string why = WhyNoTarget(read); !why.empty()) return invalid(why);
  return std::unique_ptr<Target>(new PluginTarget(read));
}

std::string PluginTarget::Name() const { return support::Excerpt(target_.name); }

std::string PluginTarget::Arithmetic() const {
  return target_.arithmetic == nullptr ? "exact" : support::Excerpt(target_.arithmetic);
}

Result<std::vector<uint8_t>> PluginTarget::Run(const reference::Operation& operation,
                                               const RunOptions& given) const {
  RunOptions options = given;
  failure_ = {};
  options.open_extents = false;
  options.parts = 0;  // and split: these concern only plans of intact
  options.split = 0;
  if (const uint64_t missing = FeaturesOf(operation, options) & ~Features().Of(operation); missing != 0) {
    return Error{INTACT_UNSUPPORTED, "the target does not declare " + FeatureNames(missing)};
  }
  if (const auto* gemm = std::get_if<reference::Gemm>(&operation))
    return RunPlugin(*gemm, options, target_.gemm, &failure_);
  if (const auto* conv = std::get_if<reference::Conv>(&operation))
    return RunPlugin(*conv, options, target_.conv, &failure_);
  return RunPlugin(std::get<reference::Grouped>(operation), options, target_.grouped, &failure_);
}

FeatureMasks PluginTarget::Features() const {
  const Mask grouped = GroupedMask(target_);
  return {GemmMask(target_).bits, ConvMask(target_).bits,
          grouped.Has(INTACT_TARGET_GROUPED) ? grouped.bits : 0};
}

}  // namespace intact::verify
