// arc4random() for systems with a glibc older than 2.36. GCC 12's static C++ library calls it in
// std::random_device.
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

uint32_t arc4random(void) {
  uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) abort();
  return number;
}
