// intact_bench: see commands.h.
#include "bench/commands.h"
#include "tools/console/commands.h"

int main(int argc, char** argv) { return intact::tools::RunProgram(intact::bench::Main, argc, argv); }
