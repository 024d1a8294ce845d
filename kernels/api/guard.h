// Common code of the C ABI's functions. Errors become statuses and messages; exceptions do not leave the
// library.
#ifndef INTACT_KERNELS_API_GUARD_H_
#define INTACT_KERNELS_API_GUARD_H_

#include <intact/engines.h>
#include <intact/grouped.h>
#include <intact/intact.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/plans/tuning.h"
#include "kernels/problem/checks.h"
#include "kernels/runtime/float_environment.h"
#include "kernels/weights/certificate.h"
#include "kernels/weights/schedule.h"

namespace intact::kernels {

/// Makes `message` this thread's last error, "" for none, and returns `status`.
intact_status ReportStatus(intact_status status, const char* message) noexcept;

/// Runs `body` of intact_`kind`_`call`() in the default floating-point environment. `body` returns an Error.
/// Turns the Error, or an exception, into a status. Always inline, like WithStruct(): small runs notice
/// closures.
template <class Body>
[[gnu::always_inline]] inline intact_status Guard(const char* kind, const char* call,
                                                  const Body& body) noexcept {
  const ScopedFloatEnvironment float_environment;
  try {
    const Error error = body();
    if (error.status == INTACT_OK) return ReportStatus(INTACT_OK, "");
    const std::string name = std::string("intact_") + kind + "_" + call;
    return ReportStatus(error.status, (name + ": " + error.message).c_str());
  } catch (const std::bad_alloc&) {
    return ReportStatus(INTACT_OUT_OF_MEMORY, "out of memory");
  } catch (const std::length_error&) {  // a container larger than any memory
    return ReportStatus(INTACT_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& exception) {
    return ReportStatus(INTACT_CODEGEN_FAILED, exception.what());
  }
}

inline intact_failing_pair ToStruct(const FailingPair& pair) {
  return {pair.k, pair.n, pair.w0, pair.w1, pair.a0, pair.a1, pair.sum};
}
intact_certificate ToStruct(const Certificate& certificate, intact_type a_type,
                            const ScheduleStatistics& schedule, int32_t pairing);

/// Whether INTACT_VERBOSE is set, and not to 0.
bool IsVerbose();

/// Calls `print` if INTACT_VERBOSE is set. If memory runs out, the line is lost, but the reported call
/// succeeds.
template <class Print>
void PrintIfVerbose(const Print& print) noexcept {
  if (!IsVerbose()) return;
  try {
    print();
  } catch (...) {
    std::fputs("intact: no memory to print a line (INTACT_VERBOSE)\n", stderr);
  }
}

inline const char* ModeName(intact_mode mode) { return mode == INTACT_EXACT ? "exact" : "saturating"; }

/// The time since the stopwatch was made. Reading the clock may be a system call, so the stopwatch reads it
/// only if INTACT_VERBOSE is set.
class Stopwatch {
 public:
  double Microseconds() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = IsVerbose() ? Clock::now() : Clock::time_point();
};

inline Error NullArgument(const char* name) {
  return {INTACT_INVALID_ARGUMENT, std::string(name) + " is NULL"};
}

/// The smallest accepted sizes of structs: their sizes in the first version of the header. Fields that a
/// shorter struct lacks take their defaults. From 1.0 on these sizes do not change.
template <class Struct>
inline constexpr size_t kFirstSize = 0;
template <>
inline constexpr size_t kFirstSize<intact_linear_desc> = 120;
template <>
inline constexpr size_t kFirstSize<intact_gemm_desc> = 40;
template <>
inline constexpr size_t kFirstSize<intact_gemm_args> = 88;
template <>
inline constexpr size_t kFirstSize<intact_gemm_info> = 80;
template <>
inline constexpr size_t kFirstSize<intact_run_info> = 48;
template <>
inline constexpr size_t kFirstSize<intact_tune_info> = 272;
template <>
inline constexpr size_t kFirstSize<intact_certificate> = 96;
template <>
inline constexpr size_t kFirstSize<intact_conv_desc> = 208;
template <>
inline constexpr size_t kFirstSize<intact_conv_args> = 112;
template <>
inline constexpr size_t kFirstSize<intact_conv_info> = 136;
template <>
inline constexpr size_t kFirstSize<intact_grouped_desc> = 128;
template <>
inline constexpr size_t kFirstSize<intact_grouped_args> = 88;
template <>
inline constexpr size_t kFirstSize<intact_grouped_info> = 88;
template <>
inline constexpr size_t kFirstSize<intact_pairs_certificate> = 80;
template <>
inline constexpr size_t kFirstSize<intact_engine_info> = 40;
template <>
inline constexpr size_t kFirstSize<intact_engine_layer> = 80;
template <>
inline constexpr size_t kFirstSize<intact_engine_answer> = 16;

static_assert(sizeof(intact_linear_desc) >= kFirstSize<intact_linear_desc> &&
              sizeof(intact_conv_desc) >= kFirstSize<intact_conv_desc>);

/// A longer struct is a mistake, not the struct of a newer program.
inline constexpr size_t kMostStructBytes = 4096;

template <class Struct>
Error CheckStructSize(const char* name, const Struct* given) {
  if (given == nullptr) return Refuse([=] { return NullArgument(name); });
  // Fields of eight bytes begin at multiples of eight, so each of them is given whole or not at all.
  static_assert(kFirstSize<Struct> % 8 == 0 && sizeof(Struct) % 8 == 0 && alignof(Struct) == 8);
  const size_t size = given->struct_size;
  const bool is_whole = size % 8 == 0 || size >= sizeof(Struct);
  if (size >= kFirstSize<Struct> && size <= kMostStructBytes && is_whole) return {};
  return Refuse([=] {
    return InvalidArgument(std::string(name) + "->struct_size is " + std::to_string(size) + "; expected " +
                           std::to_string(sizeof(Struct)) + " (use its INIT macro)");
  });
}

/// Copies `given`, a struct of any version, to `made`. `made` has defaults for fields that `given` lacks.
/// Bytes of `given` beyond this version's struct must be zero.
template <class Struct>
Error ReadStruct(const char* name, const Struct* given, Struct* made) {
  RETURN_IF_ERROR(CheckStructSize(name, given));
  const size_t size = given->struct_size;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(Struct); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return {INTACT_INVALID_ARGUMENT, std::string(name) + " has byte " + std::to_string(i) +
                                         " set, beyond the " + std::to_string(sizeof(Struct)) +
                                         " that this version of the library knows; expected 0"};
  }
  std::memcpy(made, given, std::min(size, sizeof(Struct)));
  made->struct_size = sizeof(Struct);
  return {};
}

/// Calls run(args) with the values of `given`, a struct of any version. Fields that `given` lacks have the
/// values of `defaults`.
template <class Struct, class Run>
[[gnu::always_inline]] inline Error WithStruct(const char* name, const Struct* given, const Struct& defaults,
                                               const Run& run) {
  RETURN_IF_ERROR(CheckStructSize(name, given));
  if (given->struct_size == sizeof(Struct)) return run(*given);
  Struct made = defaults;
  RETURN_IF_ERROR(ReadStruct(name, given, &made));
  return run(made);
}

/// Copies `made` to `out`, a struct of any version with a checked size, as far as it reaches.
template <class Struct>
void WriteStruct(const Struct& made, Struct* out) {
  const size_t size = out->struct_size;
  auto* const bytes = reinterpret_cast<unsigned char*>(out);
  std::memcpy(bytes, &made, std::min(size, sizeof(Struct)));
  if (size > sizeof(Struct)) std::memset(bytes + sizeof(Struct), 0, size - sizeof(Struct));
  out->struct_size = size;
}

/// Checks the arguments of a function that tunes: milliseconds, and `info` unless it is NULL.
inline Error CheckTuning(double milliseconds, const intact_tune_info* info) {
  if (info != nullptr) {
    RETURN_IF_ERROR(CheckStructSize("info", info));
  }
  constexpr double kMost = 1e6;
  if (milliseconds >= 0 && milliseconds <= kMost) return {};
  return {INTACT_INVALID_ARGUMENT, "milliseconds is " + Text(milliseconds) + "; expected 0 to 1000000"};
}

inline TuningBudget BudgetOf(double milliseconds) {
  return std::chrono::duration<double, std::milli>(milliseconds);
}

/// The line for INTACT_VERBOSE: "kernel 12.3 us, the fastest of 5; by the model …".
std::string TextOf(const Tuned& tuned);
/// Fills `info` unless it is NULL.
void WriteTuned(const Tuned& tuned, intact_tune_info* info);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_API_GUARD_H_
