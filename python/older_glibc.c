// What GCC 12's static C++ library asks glibc 2.36 for, for systems whose glibc is older: std::random_device's numbers.
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

uint32_t arc4random(void) {
  uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) abort();
  return number;
}
