// The memory that this process uses.
#ifndef INTACT_TESTS_SUPPORT_RESIDENT_H_
#define INTACT_TESTS_SUPPORT_RESIDENT_H_

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace intact::tests {

/// The bytes of this process that are in memory now, including shared pages.
inline int64_t ResidentBytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_RESIDENT_H_
