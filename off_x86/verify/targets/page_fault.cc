#include "verify/targets/page_fault.h"

namespace intact::verify {

Access AccessAtFault(const void* /*context*/) { return Access::kUnknown; }

}  // namespace intact::verify
