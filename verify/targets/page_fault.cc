#include "verify/targets/page_fault.h"

#include <ucontext.h>

namespace intact::verify {

Access AccessAtFault(const void* context) {
  constexpr greg_t kWriteBit = 2;  // of the page fault's error code
  const greg_t error = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR];
  return (error & kWriteBit) != 0 ? Access::kWrite : Access::kRead;
}

}  // namespace intact::verify
