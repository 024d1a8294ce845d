// Wrong dynamic quantizations (the contract is in include/intact/intact.h). Mutants plant them, and the
// diagnosis recognises them.
#ifndef INTACT_VERIFY_TARGETS_WRONG_QUANTIZERS_H_
#define INTACT_VERIFY_TARGETS_WRONG_QUANTIZERS_H_

#include <span>

#include "reference/contract/operation.h"

namespace intact::verify {

struct WrongQuantizer {
  const char* name;
  const char* fault;                                  // in words
  void (*quantize)(reference::Operation* operation);  // in place of reference::QuantizeActivations()
};

std::span<const WrongQuantizer> WrongQuantizers();

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_WRONG_QUANTIZERS_H_
