/* Forwards frames between two interfaces with one of four ways to receive, to compare their cost.
 *
 *   cc -O2 -o bridge-sockets bench/bridge_sockets.c
 *   bridge-sockets recvmsg|recvmmsg|ring|xdp IF1 IF2     until killed, as root
 *
 * recvmsg: one frame per call, with a virtio-net header, as `longhaul wan bridge` does.
 * recvmmsg: up to 32 frames per call, sent with sendmmsg.
 * ring: TPACKET_V3 for received frames; version 2 if the kernel has no virtio-net header in version 3.
 * xdp: AF_XDP sockets in copy mode, with a program in generic mode. Frames of at most 4096 bytes.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MUST(call) ({ __typeof__(call) r_ = (call); if ((long)r_ < 0) { perror(#call); exit(1); } r_; })
enum { FRAME = 65600, BATCH = 32, BLOCK = 1 << 20, BLOCKS = 16, CHUNK = 4096, CHUNKS = 4096 };

struct port { int fd, index, version; char *map; unsigned block, slot; };

static void option(int fd, int name, int value) {
    MUST(setsockopt(fd, SOL_PACKET, name, &value, sizeof value));
}

static void open_packet(struct port *port, const char *name, int ring) {
    port->index = if_nametoindex(name);
    port->fd = MUST(socket(AF_PACKET, SOCK_RAW, 0));
    option(port->fd, PACKET_IGNORE_OUTGOING, 1);
    if (ring) {
        struct tpacket_req3 request = { BLOCK, BLOCKS, FRAME / 16 * 16 + 16 * 8, 0, 1, 0, 0 };
        for (int version = TPACKET_V3;; version = TPACKET_V2) {
            option(port->fd, PACKET_VERSION, version);
            option(port->fd, PACKET_VNET_HDR, 1);
            request.tp_frame_size = 1 << 17;
            request.tp_frame_nr = BLOCKS * (BLOCK / request.tp_frame_size);
            unsigned size = version == TPACKET_V3 ? sizeof request : sizeof(struct tpacket_req);
            port->version = version;
            if (setsockopt(port->fd, SOL_PACKET, PACKET_RX_RING, &request, size) == 0) break;
            if (version == TPACKET_V2) { perror("ring"); exit(1); }
        }
        fprintf(stderr, "%s: TPACKET_V%d\n", name, port->version + 1);
        port->map = mmap(0, (size_t)BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED, port->fd, 0);
        if (port->map == MAP_FAILED) { perror("mmap"); exit(1); }
    } else {
        option(port->fd, PACKET_VNET_HDR, 1);
        int size = 64 << 20;
        setsockopt(port->fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    }
    int size = 64 << 20;
    setsockopt(port->fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    struct packet_mreq all = { port->index, PACKET_MR_PROMISC, 0, { 0 } };
    MUST(setsockopt(port->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all));
    struct sockaddr_ll address = { AF_PACKET, htons(ETH_P_ALL), port->index };
    MUST(bind(port->fd, (struct sockaddr *)&address, sizeof address));
}

static int move_one(struct port *from, struct port *to) {
    static char frame[FRAME];
    long length = recv(from->fd, frame, sizeof frame, MSG_DONTWAIT);
    if (length <= 0) return 0;
    if (write(to->fd, frame, length) < 0) { }
    return 1;
}

static int move_many(struct port *from, struct port *to) {
    static char frames[BATCH][FRAME];
    static struct iovec parts[BATCH];
    static struct mmsghdr messages[BATCH];
    for (int i = 0; i < BATCH; i++) {
        parts[i] = (struct iovec){ frames[i], FRAME };
        messages[i].msg_hdr = (struct msghdr){ .msg_iov = &parts[i], .msg_iovlen = 1 };
    }
    int count = recvmmsg(from->fd, messages, BATCH, MSG_DONTWAIT, 0);
    if (count <= 0) return 0;
    for (int i = 0; i < count; i++) parts[i].iov_len = messages[i].msg_len;
    for (int sent = 0; sent < count;) {
        int now = sendmmsg(to->fd, messages + sent, count - sent, 0);
        sent += now > 0 ? now : 1;
    }
    return 1;
}

static int move_ring(struct port *from, struct port *to) {
    const size_t header = 10; /* struct virtio_net_hdr */
    if (from->version == TPACKET_V3) {
        struct tpacket_block_desc *block = (void *)(from->map + (size_t)from->block * BLOCK);
        if (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) return 0;
        struct tpacket3_hdr *packet = (void *)((char *)block + block->hdr.bh1.offset_to_first_pkt);
        for (unsigned i = 0; i < block->hdr.bh1.num_pkts; i++) {
            if (write(to->fd, (char *)packet + packet->tp_mac - header, packet->tp_snaplen + header) < 0) { }
            packet = (void *)((char *)packet + packet->tp_next_offset);
        }
        __atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        from->block = (from->block + 1) % BLOCKS;
        return 1;
    }
    const unsigned slots = BLOCKS * (BLOCK >> 17);
    struct tpacket2_hdr *packet = (void *)(from->map + ((size_t)from->slot << 17));
    if (!(__atomic_load_n(&packet->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) return 0;
    if (write(to->fd, (char *)packet + packet->tp_mac - header, packet->tp_snaplen + header) < 0) { }
    __atomic_store_n(&packet->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    from->slot = (from->slot + 1) % slots;
    return 1;
}

/* AF_XDP. */
struct ring { uint32_t *producer, *consumer, *flags; void *entries; uint32_t size; };
struct xsk { int fd, index; char *area; struct ring rx, tx, fill, done; uint64_t next; };

static long bpf(int command, union bpf_attr *attr) { return syscall(SYS_bpf, command, attr, sizeof *attr); }

static struct ring map_ring(int fd, struct xdp_ring_offset *offset, uint64_t page, uint32_t size, size_t entry) {
    char *map = mmap(0, offset->desc + size * entry, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, page);
    if (map == MAP_FAILED) { perror("mmap ring"); exit(1); }
    return (struct ring){ (void *)(map + offset->producer), (void *)(map + offset->consumer),
                          (void *)(map + offset->flags), map + offset->desc, size };
}

static void open_xdp(struct xsk *xsk, const char *name) {
    uint32_t size = CHUNKS / 2;
    xsk->index = if_nametoindex(name);
    xsk->fd = MUST(socket(AF_XDP, SOCK_RAW, 0));
    xsk->area = mmap(0, (size_t)CHUNK * CHUNKS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    struct xdp_umem_reg umem = { .addr = (uintptr_t)xsk->area, .len = (uint64_t)CHUNK * CHUNKS, .chunk_size = CHUNK };
    MUST(setsockopt(xsk->fd, SOL_XDP, XDP_UMEM_REG, &umem, sizeof umem));
    int names[] = { XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING, XDP_TX_RING };
    for (int i = 0; i < 4; i++) MUST(setsockopt(xsk->fd, SOL_XDP, names[i], &size, sizeof size));
    struct xdp_mmap_offsets offsets;
    socklen_t length = sizeof offsets;
    MUST(getsockopt(xsk->fd, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &length));
    xsk->fill = map_ring(xsk->fd, &offsets.fr, XDP_UMEM_PGOFF_FILL_RING, size, 8);
    xsk->done = map_ring(xsk->fd, &offsets.cr, XDP_UMEM_PGOFF_COMPLETION_RING, size, 8);
    xsk->rx = map_ring(xsk->fd, &offsets.rx, XDP_PGOFF_RX_RING, size, sizeof(struct xdp_desc));
    xsk->tx = map_ring(xsk->fd, &offsets.tx, XDP_PGOFF_TX_RING, size, sizeof(struct xdp_desc));
    /* The first half of the chunks receives, the second half sends. */
    for (uint32_t i = 0; i < size; i++) ((uint64_t *)xsk->fill.entries)[i] = (uint64_t)i * CHUNK;
    __atomic_store_n(xsk->fill.producer, size, __ATOMIC_RELEASE);
    struct sockaddr_xdp address = { AF_XDP, XDP_COPY, xsk->index, 0, 0 };
    MUST(bind(xsk->fd, (struct sockaddr *)&address, sizeof address));

    union bpf_attr map = { .map_type = BPF_MAP_TYPE_XSKMAP, .key_size = 4, .value_size = 4, .max_entries = 1 };
    int map_fd = MUST(bpf(BPF_MAP_CREATE, &map));
    uint32_t key = 0, value = xsk->fd;
    union bpf_attr entry = { .map_fd = map_fd, .key = (uintptr_t)&key, .value = (uintptr_t)&value };
    MUST(bpf(BPF_MAP_UPDATE_ELEM, &entry));
    struct bpf_insn program[] = {
        { BPF_LDX | BPF_MEM | BPF_W, BPF_REG_2, BPF_REG_1, 16, 0 },           /* rx_queue_index */
        { BPF_LD | BPF_IMM | BPF_DW, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map_fd }, { 0 },
        { BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, XDP_PASS },
        { BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect_map },
        { BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
    };
    union bpf_attr load = { .prog_type = BPF_PROG_TYPE_XDP, .insns = (uintptr_t)program,
                            .insn_cnt = sizeof program / sizeof *program, .license = (uintptr_t) "GPL" };
    int program_fd = MUST(bpf(BPF_PROG_LOAD, &load));
    union bpf_attr link = { 0 };
    link.link_create.prog_fd = program_fd;
    link.link_create.target_ifindex = xsk->index;
    link.link_create.attach_type = BPF_XDP;
    link.link_create.flags = XDP_FLAGS_SKB_MODE;
    MUST(bpf(BPF_LINK_CREATE, &link));
}

static int move_xdp(struct xsk *from, struct xsk *to) {
    uint32_t consumer = *from->rx.consumer;
    uint32_t ready = __atomic_load_n(from->rx.producer, __ATOMIC_ACQUIRE) - consumer;
    if (!ready) return 0;
    uint32_t free_done = __atomic_load_n(to->done.producer, __ATOMIC_ACQUIRE);
    __atomic_store_n(to->done.consumer, free_done, __ATOMIC_RELEASE);
    uint32_t tx = *to->tx.producer, fill = *from->fill.producer, mask = CHUNKS / 2 - 1;
    if (ready > 64) ready = 64;
    uint32_t sent = 0;
    for (uint32_t i = 0; i < ready; i++) {
        struct xdp_desc *received = &((struct xdp_desc *)from->rx.entries)[(consumer + i) & mask];
        /* A chunk is free again when its frame has been sent: as many as the ring has are in use. */
        if (tx + sent - free_done < CHUNKS / 2) {
            uint64_t chunk = ((uint64_t)CHUNKS / 2 + ((tx + sent) & mask)) * CHUNK;
            memcpy(to->area + chunk, from->area + received->addr, received->len);
            ((struct xdp_desc *)to->tx.entries)[(tx + sent) & mask] = (struct xdp_desc){ chunk, received->len, 0 };
            sent++;
        }
        ((uint64_t *)from->fill.entries)[(fill + i) & mask] = received->addr & ~(uint64_t)(CHUNK - 1);
    }
    __atomic_store_n(from->rx.consumer, consumer + ready, __ATOMIC_RELEASE);
    __atomic_store_n(from->fill.producer, fill + ready, __ATOMIC_RELEASE);
    __atomic_store_n(to->tx.producer, tx + sent, __ATOMIC_RELEASE);
    if (sendto(to->fd, 0, 0, MSG_DONTWAIT, 0, 0) < 0 && errno != EAGAIN && errno != EBUSY && errno != ENOBUFS) perror("sendto");
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    if (!strcmp(argv[1], "xdp")) {
        static struct xsk ports[2];
        for (int i = 0; i < 2; i++) open_xdp(&ports[i], argv[2 + i]);
        fprintf(stderr, "ready\n");
        for (;;) {
            int busy = move_xdp(&ports[0], &ports[1]);
            busy |= move_xdp(&ports[1], &ports[0]);
            struct pollfd fds[2] = { { ports[0].fd, POLLIN, 0 }, { ports[1].fd, POLLIN, 0 } };
            if (!busy) poll(fds, 2, -1);
        }
    }
    int (*move)(struct port *, struct port *) =
        !strcmp(argv[1], "recvmsg") ? move_one : !strcmp(argv[1], "recvmmsg") ? move_many : move_ring;
    static struct port ports[2];
    for (int i = 0; i < 2; i++) open_packet(&ports[i], argv[2 + i], move == move_ring);
    fprintf(stderr, "ready\n");
    for (;;) {
        int busy = move(&ports[0], &ports[1]);
        busy |= move(&ports[1], &ports[0]);
        struct pollfd fds[2] = { { ports[0].fd, POLLIN, 0 }, { ports[1].fd, POLLIN, 0 } };
        if (!busy) poll(fds, 2, -1);
    }
}
