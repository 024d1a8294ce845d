/// @file
/// Grouped weights in C++: a class around the calls of grouped.h.
#ifndef INTACT_GROUPED_HPP_
#define INTACT_GROUPED_HPP_

#include <intact/grouped.h>

#include <intact/intact.hpp>

namespace intact {

class Grouped;

/// @cond private
namespace detail {
struct GroupedCalls {
  using Plan = Grouped;
  using Handle = intact_grouped;
  using Args = intact_grouped_args;
  using Info = intact_grouped_info;
  static constexpr Info kInfo = INTACT_GROUPED_INFO_INIT;
  static constexpr auto kLoad = intact_grouped_load;
  static constexpr auto kLoadMemory = intact_grouped_load_memory;
  static constexpr auto kSave = intact_grouped_save;
  static constexpr auto kSaveMemory = intact_grouped_save_memory;
  static constexpr auto kPrepare = intact_grouped_prepare;
  static constexpr auto kRun = intact_grouped_run;
  static constexpr auto kRunPart = intact_grouped_run_part;
  static constexpr auto kQuery = intact_grouped_query;
  static constexpr auto kDestroy = intact_grouped_destroy;
};
}  // namespace detail
/// @endcond

/// A plan of grouped weights.
class Grouped : public Plan<detail::GroupedCalls> {
 public:
  /// Copies and packs `b`, its scales and its zero points. Keeps no pointer to the caller's memory. Errors:
  /// see intact_grouped_create().
  static Result<Grouped> Create(const intact_grouped_desc& desc, const void* b) {
    intact_grouped* handle = nullptr;
    return Adopt(intact_grouped_create(&desc, b, &handle), &handle);
  }
  /// Which pairs of weights can saturate in kernels of other libraries. Errors: see
  /// intact_grouped_certificate().
  Result<intact_pairs_certificate> Certificate() const {
    intact_pairs_certificate certificate = INTACT_PAIRS_CERTIFICATE_INIT;
    Error error = detail::LastError(intact_grouped_certificate(handle_.get(), &certificate));
    if (!error.ok()) return error;
    return certificate;
  }

 private:
  friend Plan;
  Grouped() = default;
};

}  // namespace intact
#endif  // INTACT_GROUPED_HPP_
