#include "verify/targets/emulated_target.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "emulator/emulator.h"
#include "verify/targets/worker.h"

namespace intact::verify {
namespace {

class EmulatedTarget final : public Target {
 public:
  explicit EmulatedTarget(std::unique_ptr<Target> target) : target_(std::move(target)) {}

  std::string Name() const override { return target_->Name(); }
  std::string Arithmetic() const override { return target_->Arithmetic(); }
  FeatureMasks Features() const override { return target_->Features(); }
  Failure LastFailure() const override { return failure_; }

  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override {
    Result<std::vector<uint8_t>> output = target_->Run(operation, options);
    failure_ = target_->LastFailure();
    const std::string fault = emulator::ScopedEmulator::TakeFault();
    if (fault.empty()) return output;
    failure_ = {FailureKind::kError, fault};
    return Error{INTACT_CODEGEN_FAILED, "the CPU would refuse an instruction of the target: " + fault};
  }

 private:
  std::unique_ptr<Target> target_;
  mutable Failure failure_;  // the last run's failure
};

}  // namespace

TargetFactory Emulated(TargetFactory factory) {
  return [factory = std::move(factory)]() -> Result<std::unique_ptr<Target>> {
    static const emulator::ScopedEmulator kEmulator;
    emulator::ScopedEmulator::SetLimit([](const std::string& why) { Worker::Refuse(why.c_str()); });
    ASSIGN_OR_RETURN(std::unique_ptr<Target> target, factory());
    return std::unique_ptr<Target>(std::make_unique<EmulatedTarget>(std::move(target)));
  };
}

}  // namespace intact::verify
