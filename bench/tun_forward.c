/* Forwards packets between two TUN devices in different ways, to compare their cost. It emulates nothing, so its rate
 * is the highest that a program between two TUN devices reaches.
 *
 *   cc -O2 -o tun-forward bench/tun_forward.c -luring
 *   tun-forward WAY NAMESPACE_A NAMESPACE_B MTU     until SIGINT, as root; prints CPU seconds per GB
 *
 * calls: read, write, and poll when both devices are empty, as longhaul does.
 * napi: the same with IFF_NAPI.
 * spin: the same, and reads for up to 20 us before poll.
 * uring-N: io_uring with N reads per device; a call submits all writes and reads, and waits for any.
 * multishot: io_uring with one READ_MULTISHOT per device (Linux 6.7).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MUST(call) ({ __typeof__(call) r_ = (call); if ((long)r_ < 0) { perror(#call); exit(1); } r_; })
enum { FRAME = 65600, SLOTS = 32, READ = 0, WRITE = 1, READ_MULTISHOT = 49, USO = 0x60 };

static volatile sig_atomic_t stop;
static unsigned long long bytes, packets, calls;
static char buffers[2][SLOTS][FRAME];

static void on_signal(int number) { (void)number; stop = 1; }

static int open_tun(const char *space, int index, const char *mtu, int flags, int napi) {
    char path[256], setup[256];
    snprintf(path, sizeof path, "/run/netns/%s", space);
    MUST(setns(MUST(open(path, O_RDONLY | O_CLOEXEC)), CLONE_NEWNET));
    int fd = MUST(open("/dev/net/tun", O_RDWR | flags));
    struct ifreq request = { .ifr_name = "tun0" };
    request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR | (napi ? IFF_NAPI : 0);
    MUST(ioctl(fd, TUNSETIFF, &request));
    MUST(ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN | USO));
    snprintf(setup, sizeof setup, "ip addr add 10.77.0.%d/24 dev tun0; ip link set tun0 mtu %s up", index + 1, mtu);
    if (system(setup)) exit(1);
    return fd;
}

static int forward(int from, int to) {
    ssize_t length = read(from, buffers[0][0], FRAME);
    calls++;
    if (length <= 0) return 0;
    /* An error means that the receiver drops the packet. */
    if (write(to, buffers[0][0], length) < 0) stop = stop;
    bytes += length, packets++, calls++;
    return 1;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void by_calls(int fds[2], double spin) {
    struct pollfd polls[2] = { { fds[0], POLLIN, 0 }, { fds[1], POLLIN, 0 } };
    while (!stop) {
        int moved = forward(fds[0], fds[1]) + forward(fds[1], fds[0]);
        for (double until = now() + spin; !moved && now() < until;)
            moved = forward(fds[0], fds[1]) + forward(fds[1], fds[0]);
        if (!moved) poll(polls, 2, 1000), calls++;
    }
}

static struct io_uring_sqe *entry(struct io_uring *ring, int kind, int side, int slot) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    if (!sqe) io_uring_submit(ring), sqe = io_uring_get_sqe(ring);
    memset(sqe, 0, sizeof *sqe);
    sqe->user_data = kind << 16 | side << 8 | slot;
    sqe->flags = IOSQE_FIXED_FILE;
    return sqe;
}

static void transfer(struct io_uring *ring, int kind, int side, int slot, unsigned length) {
    struct io_uring_sqe *sqe = entry(ring, kind, side, slot);
    sqe->opcode = kind == READ ? IORING_OP_READ : IORING_OP_WRITE;
    sqe->fd = kind == READ ? side : !side;
    sqe->addr = (unsigned long)buffers[side][slot];
    sqe->len = length;
}

static void read_many(struct io_uring *ring, int side) {
    struct io_uring_sqe *sqe = entry(ring, READ, side, 0);
    sqe->opcode = READ_MULTISHOT;
    sqe->fd = sqe->buf_group = side;
    sqe->flags |= IOSQE_BUFFER_SELECT;
}

static void by_uring(int fds[2], int reads) {
    struct io_uring ring;
    struct io_uring_params parameters = { .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN };
    struct io_uring_buf_ring *free_slots[2];
    MUST(io_uring_queue_init_params(256, &ring, &parameters));
    MUST(io_uring_register_files(&ring, fds, 2));
    for (int side = 0; side < 2; side++) {
        for (int slot = 0; slot < reads; slot++) transfer(&ring, READ, side, slot, FRAME);
        if (reads) continue;
        size_t size = SLOTS * sizeof(struct io_uring_buf);
        free_slots[side] = mmap(0, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
        struct io_uring_buf_reg group = { (unsigned long)free_slots[side], SLOTS, side };
        MUST(io_uring_register_buf_ring(&ring, &group, 0));
        io_uring_buf_ring_init(free_slots[side]);
        for (int slot = 0; slot < SLOTS; slot++)
            io_uring_buf_ring_add(free_slots[side], buffers[side][slot], FRAME, slot, SLOTS - 1, slot);
        io_uring_buf_ring_advance(free_slots[side], SLOTS);
        read_many(&ring, side);
    }
    while (!stop) {
        struct io_uring_cqe *done;
        unsigned head, count = 0;
        io_uring_submit_and_wait(&ring, 1), calls++;
        io_uring_for_each_cqe(&ring, head, done) {
            int kind = done->user_data >> 16, side = done->user_data >> 8 & 1, slot = done->user_data & 255;
            count++;
            if (kind == READ && done->res > 0) {
                if (!reads) slot = done->flags >> IORING_CQE_BUFFER_SHIFT;
                bytes += done->res, packets++;
                transfer(&ring, WRITE, side, slot, done->res);
            } else if (reads) {
                transfer(&ring, READ, side, slot, FRAME);
            } else if (kind == WRITE) {
                io_uring_buf_ring_add(free_slots[side], buffers[side][slot], FRAME, slot, SLOTS - 1, 0);
                io_uring_buf_ring_advance(free_slots[side], 1);
            }
            if (!reads && kind == READ && !(done->flags & IORING_CQE_F_MORE)) read_many(&ring, side);
        }
        io_uring_cq_advance(&ring, count);
    }
}

int main(int count, char **words) {
    if (count != 5) return 2;
    const char *way = words[1];
    int uring = !strncmp(way, "uring-", 6), multishot = !strcmp(way, "multishot"), fds[2];
    for (int side = 0; side < 2; side++)
        fds[side] = open_tun(words[2 + side], side, words[4], uring || multishot ? 0 : O_NONBLOCK, !strcmp(way, "napi"));
    struct sigaction action = { .sa_handler = on_signal };
    sigaction(SIGINT, &action, 0);
    /* As the threads of links. */
    sched_setscheduler(0, SCHED_RR, &(struct sched_param){ 1 });
    prctl(PR_SET_TIMERSLACK, 1);
    puts("ready"), fflush(stdout);
    if (uring || multishot) by_uring(fds, multishot ? 0 : atoi(way + 6));
    else by_calls(fds, strcmp(way, "spin") ? 0 : 20e-6);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double user = usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6;
    double kernel = usage.ru_stime.tv_sec + usage.ru_stime.tv_usec / 1e6;
    printf("%.3f %.2f\n", (user + kernel) / (bytes / 1e9), (double)calls / packets);
}
