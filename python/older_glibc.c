// For systems with a glibc older than this build's, down to 2.28: functions that GCC 12's static C++ library calls there, and the
// versions of mathematical functions that only they have. They compute the same; the newer versions set errno in another way.
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#pragma GCC visibility push(hidden)

// 0: there may be several threads.
char __libc_single_threaded = 0;

// Of std::random_device.
uint32_t arc4random(void) {
  uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) abort();
  return number;
}

// Of std::condition_variable, which waits by the monotonic clock.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  struct timespec now, end;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += until->tv_sec - now.tv_sec;
  end.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (end.tv_nsec < 0) {
    end.tv_nsec += 1000000000;
    --end.tv_sec;
  } else if (end.tv_nsec >= 1000000000) {
    end.tv_nsec -= 1000000000;
    ++end.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &end);
}

#define OLDER(function)                                                     \
  __asm__(".symver older_" #function "," #function "@GLIBC_2.2.5");         \
  __attribute__((visibility("default"))) double older_##function(double x); \
  double function(double x) { return older_##function(x); }

OLDER(exp)
OLDER(exp2)
OLDER(log)
OLDER(log2)
