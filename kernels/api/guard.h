// What the C ABI's functions share: errors as statuses and messages; nothing throws through it.
#ifndef INTACT_KERNELS_API_GUARD_H_
#define INTACT_KERNELS_API_GUARD_H_

#include <intact/intact.h>

#include <chrono>
#include <exception>
#include <intact/intact.hpp>
#include <new>
#include <stdexcept>
#include <string>

#include "kernels/weights/certificate.h"
#include "kernels/weights/schedule.h"

namespace intact::kernels {

/// Makes `message` this thread's last error, "" for none, and returns `status`.
intact_status ReportStatus(intact_status status, const char* message) noexcept;

/// Runs `body`, which returns an Error, and turns what it returns or throws into a status.
template <class Body>
intact_status Guard(const char* function, Body body) noexcept {
  try {
    const Error error = body();
    if (error.status == INTACT_OK) return ReportStatus(INTACT_OK, "");
    return ReportStatus(error.status, (std::string(function) + ": " + error.message).c_str());
  } catch (const std::bad_alloc&) {
    return ReportStatus(INTACT_OUT_OF_MEMORY, "out of memory");
  } catch (const std::length_error&) {  // a container beyond any memory
    return ReportStatus(INTACT_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& exception) {
    return ReportStatus(INTACT_CODEGEN_FAILED, exception.what());
  }
}

intact_certificate ToStruct(const Certificate& certificate, intact_type a_type,
                            const ScheduleStatistics& schedule);

/// INTACT_VERBOSE.
bool IsVerbose();

inline const char* ModeName(intact_mode mode) { return mode == INTACT_EXACT ? "exact" : "saturating"; }

class Stopwatch {
 public:
  double Microseconds() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

inline Error NullArgument(const char* name) {
  return {INTACT_INVALID_ARGUMENT, std::string(name) + " is NULL"};
}

/// Checks the arguments of a function that lists failing pairs, number `first` and on, and sets `*written` to
/// 0.
template <class Pair>
Error CheckListing(int64_t first, int64_t count, const Pair* pairs, int64_t* written) {
  if (pairs == nullptr) return NullArgument("pairs");
  if (written == nullptr) return NullArgument("written");
  *written = 0;
  if (first >= 0 && count >= 0) return {};
  return {INTACT_INVALID_ARGUMENT, "first is " + std::to_string(first) + " and count is " +
                                       std::to_string(count) + "; expected 0 or more"};
}

/// Checks an output struct, which the caller must have initialised.
template <class Struct>
Error CheckStruct(const char* name, const Struct* out) {
  if (out == nullptr) return NullArgument(name);
  if (out->struct_size == sizeof(Struct)) return {};
  return {INTACT_INVALID_ARGUMENT, std::string(name) + "->struct_size is " +
                                       std::to_string(out->struct_size) + "; expected " +
                                       std::to_string(sizeof(Struct))};
}

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_API_GUARD_H_
