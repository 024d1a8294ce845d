// The command line of intact_bench, which prints a table that compares intact with its peers and the machine's
// peaks. Its subcommands measure the rest: tuning, traps, and the constants of the cost models.
#ifndef INTACT_BENCH_COMMANDS_H_
#define INTACT_BENCH_COMMANDS_H_

namespace intact::bench {

/// Returns the exit status: 0; 1 a result of intact was wrong, and not timed; 2 bad usage or input, reported in
/// one line on stderr.
int Main(int argc, char** argv);

}  // namespace intact::bench
#endif  // INTACT_BENCH_COMMANDS_H_
