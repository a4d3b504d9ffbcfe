// Creates, and reads, many small files by plain system calls and by io_uring with the calls of several
// files in each submission. bench/small-files.sh compiles and runs it.
//
//   small_files DIR COUNT ROUNDS
//
// Prints the median CPU time and wall time per file: of this process with the kernel's worker threads
// for it. Nothing is synced; each way has its own directories, which are removed afterwards.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096, PER_DIR = 250, BATCH = 32, MOST_ROUNDS = 99 };
static char data[BYTES], room[BATCH][BYTES];
static struct io_uring ring;

static void check(int result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(result == -1 ? errno : -result));
        exit(1);
    }
}

static void names(int number, char *temporary, char *final) {
    sprintf(temporary, "d%d/.f%d", number / PER_DIR, number);
    sprintf(final, "d%d/f%d", number / PER_DIR, number);
}

static void create_plainly(int dir, int count) {
    char temporary[64], final[64];
    for (int i = 0; i < count; i++) {
        names(i, temporary, final);
        int file = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        check(file, "openat");
        check(write(file, data, BYTES), "write");
        check(close(file), "close");
        check(renameat(dir, temporary, dir, final), "renameat");
    }
}

static void read_plainly(int dir, int count) {
    char temporary[64], final[64];
    for (int i = 0; i < count; i++) {
        names(i, temporary, final);
        int file = openat(dir, final, O_RDONLY | O_CLOEXEC);
        check(file, "openat");
        check(read(file, room[0], BYTES), "read");
        check(close(file), "close");
    }
}

// Submits the calls of BATCH files at once; those of one file follow each other.
static void by_ring(int dir, int count, int creates) {
    char temporary[BATCH][64], final[BATCH][64];
    for (int first = 0; first < count; first += BATCH) {
        int files = count - first < BATCH ? count - first : BATCH, calls = files * (creates ? 4 : 3);
        for (int i = 0; i < files; i++) {
            names(first + i, temporary[i], final[i]);
            int flags = creates ? O_WRONLY | O_CREAT | O_EXCL : O_RDONLY;
            struct io_uring_sqe *open = io_uring_get_sqe(&ring);
            io_uring_prep_openat_direct(open, dir, creates ? temporary[i] : final[i], flags, 0644, i);
            open->flags |= IOSQE_IO_LINK;
            struct io_uring_sqe *move = io_uring_get_sqe(&ring);
            if (creates)
                io_uring_prep_write(move, i, data, BYTES, 0);
            else
                io_uring_prep_read(move, i, room[i], BYTES, 0);
            move->flags |= IOSQE_IO_LINK | IOSQE_FIXED_FILE;
            struct io_uring_sqe *close = io_uring_get_sqe(&ring);
            io_uring_prep_close_direct(close, i);
            if (!creates)
                continue;
            close->flags |= IOSQE_IO_LINK;
            io_uring_prep_renameat(io_uring_get_sqe(&ring), dir, temporary[i], dir, final[i], 0);
        }
        check(io_uring_submit_and_wait(&ring, calls), "io_uring_submit_and_wait");
        struct io_uring_cqe *done;
        for (int i = 0; i < calls; i++) {
            check(io_uring_wait_cqe(&ring, &done), "io_uring_wait_cqe");
            check(done->res, "a call of io_uring");
            io_uring_cqe_seen(&ring, done);
        }
    }
}

static double cpu(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
}

static double wall(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

int main(int argc, char **argv) {
    static const char *ways[] = {"create, system calls", "create, io_uring", "read, system calls", "read, io_uring"};
    static double spent[4][MOST_ROUNDS], took[4][MOST_ROUNDS];
    if (argc != 4)
        return fprintf(stderr, "usage: small_files DIR COUNT ROUNDS\n"), 2;
    int count = atoi(argv[2]), rounds = atoi(argv[3]);
    if (rounds < 1 || rounds > MOST_ROUNDS)
        return fprintf(stderr, "1 to %d rounds\n", MOST_ROUNDS), 2;
    check(io_uring_queue_init(4 * BATCH, &ring, 0), "io_uring_queue_init");
    check(io_uring_register_files_sparse(&ring, BATCH), "io_uring_register_files_sparse");
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < 2; turn++) {
            int ringed = (round + turn) % 2;
            char path[4096], sub[64];
            snprintf(path, sizeof path, "%s/%d-%d", argv[1], round, ringed);
            check(mkdir(path, 0755), "mkdir");
            int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            check(dir, "open");
            for (int i = 0; i <= (count - 1) / PER_DIR; i++)
                sprintf(sub, "d%d", i), check(mkdirat(dir, sub, 0755), "mkdirat");
            for (int reads = 0; reads < 2; reads++) {
                double before = cpu(), begun = wall();
                if (ringed)
                    by_ring(dir, count, !reads);
                else if (reads)
                    read_plainly(dir, count);
                else
                    create_plainly(dir, count);
                spent[2 * reads + ringed][round] = (cpu() - before) / count;
                took[2 * reads + ringed][round] = (wall() - begun) / count;
            }
            close(dir);
        }
    }
    for (int way = 0; way < 4; way++) {
        qsort(spent[way], rounds, sizeof(double), ascending);
        qsort(took[way], rounds, sizeof(double), ascending);
        printf("%-22s %6.1f us of CPU time  %6.1f us  per file, medians of %d\n", ways[way],
               spent[way][rounds / 2], took[way][rounds / 2], rounds);
    }
}
