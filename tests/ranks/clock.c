// Loaded before a program (LD_PRELOAD): each rank has another time of day, three days later than the rank before it, and
// it is set back by an hour every two seconds. The monotonic clock stays as it is.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

typedef int (*clock_function)(clockid_t, struct timespec*);

static int real_time(clockid_t clock, struct timespec* time) {
  static clock_function real = NULL;
  if (real == NULL) real = (clock_function)dlsym(RTLD_NEXT, "clock_gettime");
  return real(clock, time);
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  const int result = real_time(clock, time);
  const char* const rank = getenv("OMPI_COMM_WORLD_RANK");
  if (result != 0 || clock != CLOCK_REALTIME || rank == NULL) return result;
  time->tv_sec += atol(rank) * 3 * 86400 - (time->tv_sec / 2 % 100) * 3600;
  return result;
}

int gettimeofday(struct timeval* time, void* zone) {
  (void)zone;
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* to) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return (time_t)-1;
  if (to != NULL) *to = now.tv_sec;
  return now.tv_sec;
}
