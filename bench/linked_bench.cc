// `intact bench` of static programs, which hold the benchmarks.
#include "bench/commands.h"
#include "tools/console/commands.h"

namespace intact::tools {

int RunBench(int argc, char** argv) { return bench::Main(argc, argv); }

}  // namespace intact::tools
