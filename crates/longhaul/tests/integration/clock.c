/* A wall clock that is stepped: every call of it is CLOCK_STEP seconds away from the truth, or, with
 * CLOCK_SWING, by turns ahead and behind, or by the number in the file CLOCK_FILE. Interposed with
 * LD_PRELOAD; other clocks are true. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
	static int turn;
	long failed = syscall(SYS_clock_gettime, clock, now);
	if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return (int)failed;
	const char *step = getenv("CLOCK_STEP"), *swing = getenv("CLOCK_SWING"), *file = getenv("CLOCK_FILE");
	char text[32] = "";
	int opened = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
	if (opened >= 0) {
		if (read(opened, text, sizeof text - 1) > 0)
			now->tv_sec += atol(text);
		close(opened);
	}
	if (step)
		now->tv_sec += atol(step);
	if (swing)
		now->tv_sec += __atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED) % 2 ? atol(swing) : -atol(swing);
	return 0;
}
