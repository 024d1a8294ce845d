// What machine this is, for `intact info` and for the report.
#ifndef INTACT_TOOLS_MACHINE_H_
#define INTACT_TOOLS_MACHINE_H_

#include <intact/intact.h>

#include <string>

#include "verify/report.h"

namespace intact::tools {

/// CPU name, cores and caches, as jit/topology.h detects them.
verify::Machine DescribeMachine();

/// The number of logical CPUs that this process may run on, at least 1.
int UsableThreads();

/// The ladder, weakest first: what is available, or why it is not.
std::vector<verify::IsaStatus> DescribeIsas();

/// Why plans cannot run on `isa` here, where intact_isa_available() says so.
std::string WhyNotAvailable(intact_isa isa);

}  // namespace intact::tools
#endif  // INTACT_TOOLS_MACHINE_H_
