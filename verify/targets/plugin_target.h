// A shared object with the interface of include/intact/target.h, as a target in this process.
// isolated_target.h runs a target that may crash in its own process.
#ifndef INTACT_VERIFY_TARGETS_PLUGIN_TARGET_H_
#define INTACT_VERIFY_TARGETS_PLUGIN_TARGET_H_

#include <intact/target.h>

#include <memory>
#include <string>
#include <vector>

#include "verify/problem/target.h"

namespace intact::verify {

class PluginTarget : public Target {
 public:
  /// Loads `file` for the life of the process. Errors name the file and what is wrong with it.
  static Result<std::unique_ptr<Target>> Open(const std::string& file, const std::string& options);

  std::string Name() const override;
  std::string Arithmetic() const override;
  FeatureMasks Features() const override;
  Failure LastFailure() const override { return failure_; }
  /// Runs on guarded memory, as a whole, whatever options.split and options.parts are. UNSUPPORTED for
  /// operations that the plug-in does not declare or refuses.
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override;

 private:
  explicit PluginTarget(const intact_target& target) : target_(target) {}

  intact_target target_;
  mutable Failure failure_;  // the last run's failure
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_PLUGIN_TARGET_H_
