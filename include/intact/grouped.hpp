/// @file
/// Grouped weights in C++: a class around the calls of grouped.h.
#ifndef INTACT_GROUPED_HPP_
#define INTACT_GROUPED_HPP_

#include <intact/grouped.h>

#include <cstddef>
#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace intact {

/// A plan of grouped weights.
///
/// Move-only; a moved-from Grouped may only be assigned to or destroyed. Immutable: many threads may call
/// Run() at once.
class Grouped {
 public:
  /// Copies and packs `b`, its scales and its zero points. Keeps no pointer to the caller's memory. Errors:
  /// see intact_grouped_create().
  static Result<Grouped> Create(const intact_grouped_desc& desc, const void* b) {
    intact_grouped* handle = nullptr;
    Error error = detail::LastError(intact_grouped_create(&desc, b, &handle));
    if (!error.ok()) return error;
    return Grouped(handle);
  }

  /// Creates a plan from a file that Save() wrote, on this or another machine. Errors: see
  /// intact_grouped_load().
  static Result<Grouped> Load(const std::string& path, int32_t max_isa = INTACT_ISA_ANY) {
    intact_grouped* handle = nullptr;
    Error error = detail::LastError(intact_grouped_load(path.c_str(), max_isa, &handle));
    if (!error.ok()) return error;
    return Grouped(handle);
  }
  /// As Load(), from bytes in memory. Errors: see intact_grouped_load_memory().
  static Result<Grouped> LoadMemory(const void* data, size_t size, int32_t max_isa = INTACT_ISA_ANY) {
    intact_grouped* handle = nullptr;
    Error error = detail::LastError(intact_grouped_load_memory(data, size, max_isa, &handle));
    if (!error.ok()) return error;
    return Grouped(handle);
  }
  /// Writes the plan to a file. Errors: see intact_grouped_save().
  Error Save(const std::string& path) const {
    return detail::LastError(intact_grouped_save(handle_.get(), path.c_str()));
  }
  /// The bytes that Save() writes.
  Result<std::vector<uint8_t>> SaveMemory() const {
    return detail::SaveToVector(
        [&](void* data, size_t* size) { return intact_grouped_save_memory(handle_.get(), data, size); });
  }

  /// Reports what a run needs. Errors: see intact_grouped_prepare().
  Result<intact_run_info> Prepare(const intact_grouped_args& args) const {
    intact_run_info info = INTACT_RUN_INFO_INIT;
    Error error = detail::LastError(intact_grouped_prepare(handle_.get(), &args, &info));
    if (!error.ok()) return error;
    return info;
  }
  /// Computes C. Errors: see intact_grouped_run().
  Error Run(const intact_grouped_args& args) const {
    return detail::LastError(intact_grouped_run(handle_.get(), &args));
  }
  /// Computes part `part` of `parts` of a run. Errors: see intact_grouped_run_part().
  Error RunPart(const intact_grouped_args& args, int32_t part, int32_t parts) const {
    return detail::LastError(intact_grouped_run_part(handle_.get(), &args, part, parts));
  }
  /// What the plan chose.
  intact_grouped_info Info() const {
    intact_grouped_info info = INTACT_GROUPED_INFO_INIT;
    (void)intact_grouped_query(handle_.get(), &info);
    return info;
  }
  /// Which pairs of weights can saturate in kernels of other libraries. Errors: see
  /// intact_grouped_certificate().
  Result<intact_pairs_certificate> Certificate() const {
    intact_pairs_certificate certificate = INTACT_PAIRS_CERTIFICATE_INIT;
    Error error = detail::LastError(intact_grouped_certificate(handle_.get(), &certificate));
    if (!error.ok()) return error;
    return certificate;
  }
  /// The plan, for the calls of grouped.h. The Grouped owns it.
  const intact_grouped* handle() const noexcept { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(intact_grouped* handle) const noexcept { intact_grouped_destroy(handle); }
  };
  explicit Grouped(intact_grouped* handle) : handle_(handle) {}

  std::unique_ptr<intact_grouped, Destroy> handle_;
};

}  // namespace intact
#endif  // INTACT_GROUPED_HPP_
