/* The time of day of one program, as many seconds ahead of this machine's as a file says, or behind it. Preloaded, it takes the place of
   the C library's functions; the file may change at any time, so the clock jumps while the program runs. Clocks that count from the
   machine's start go on as they are: so they do when somebody sets a real clock. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *ahead;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("TEST_CLOCK_FILE");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) ahead = mapped;
    close(file);
}

static long long seconds_ahead(void) {
    return ahead ? *ahead : 0;
}

/* The kernel is asked itself: looking for the C library's function may allocate, and allocators ask for the time. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += seconds_ahead();
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    int result = syscall(SYS_gettimeofday, now, zone);
    if (result == 0) now->tv_sec += seconds_ahead();
    return result;
}

time_t time(time_t *also) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (also) *also = now.tv_sec;
    return now.tv_sec;
}

/* Kafka's client waits until a time of day, which the kernel compares with its own. */
int cnd_timedwait(cnd_t *condition, mtx_t *lock, const struct timespec *until) {
    static int (*wait)(cnd_t *, mtx_t *, const struct timespec *);
    if (!wait) wait = (int (*)(cnd_t *, mtx_t *, const struct timespec *))dlsym(RTLD_NEXT, "cnd_timedwait");
    struct timespec real = *until;
    real.tv_sec -= seconds_ahead();
    return wait(condition, lock, &real);
}
