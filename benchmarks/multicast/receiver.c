/* Subscribers in one process, each in a network namespace of its own, that count what they receive.
 *
 * receiver udp MIN_BYTES HOSTS FD...
 * receiver pgm|norm BYTES GROUP PORT FIRST_ADDRESS NAMESPACE_FD...
 *
 * udp counts datagrams of at least MIN_BYTES on sockets that were opened by another process; the sockets of host 0 are
 * the first, the one after HOSTS more, and so on. pgm and norm open sockets themselves; BYTES is the size of a message.
 * A line on standard input is answered with the messages received so far by all hosts, by the host with the fewest, and
 * by the one with the most.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef WITH_PGM
#include "openpgm.h"
#else
#include "give_up.h"
#endif
#ifdef WITH_NORM
#include "norm.h"
#endif

enum { MAX_HOSTS = 256, MAX_SOCKETS = 1024, DATAGRAMS = 64, HEAD = 64, EVENTS = 64, BUFFER = 65536 };
enum { INPUT = 1 << 20 };

static uint64_t units[MAX_HOSTS]; /* Messages, or bytes of a stream. */
static int hosts;
static uint64_t unit = 1;

static void report(void)
{
    char line[256];
    uint64_t all = 0, fewest = UINT64_MAX, most = 0;
    if (read(0, line, sizeof line) <= 0)
        exit(0);
    for (int host = 0; host < hosts; host++) {
        uint64_t count = units[host] / unit;
        all += count;
        fewest = count < fewest ? count : fewest;
        most = count > most ? count : most;
    }
    printf("%llu %llu %llu\n", (unsigned long long)all, (unsigned long long)fewest, (unsigned long long)most);
    fflush(stdout);
}

static void watch(int epoll, int fd, uint32_t number)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
        give_up("epoll_ctl");
}

static void ready(void)
{
    puts("ready");
    fflush(stdout);
}

static void run_udp(unsigned min_bytes, int count, char **arguments)
{
    static char heads[DATAGRAMS][HEAD];
    static struct mmsghdr received[DATAGRAMS];
    static struct iovec into[DATAGRAMS];
    int sockets[MAX_SOCKETS], epoll = epoll_create1(0);
    for (int number = 0; number < DATAGRAMS; number++) {
        into[number] = (struct iovec){heads[number], HEAD};
        received[number].msg_hdr = (struct msghdr){.msg_iov = &into[number], .msg_iovlen = 1};
    }
    for (int number = 0; number < count; number++)
        watch(epoll, sockets[number] = atoi(arguments[number]), (uint32_t)number);
    watch(epoll, 0, INPUT);
    ready();
    for (;;) {
        struct epoll_event events[EVENTS];
        int found = epoll_wait(epoll, events, EVENTS, -1);
        for (int event = 0; event < found; event++) {
            uint32_t number = events[event].data.u32;
            if (number == INPUT) {
                report();
                continue;
            }
            int datagrams = recvmmsg(sockets[number], received, DATAGRAMS, MSG_DONTWAIT | MSG_TRUNC, NULL);
            for (int datagram = 0; datagram < datagrams; datagram++)
                units[number % (uint32_t)hosts] += received[datagram].msg_len >= min_bytes;
        }
    }
}

static void enter(const char *namespace)
{
    if (setns(atoi(namespace), CLONE_NEWNET))
        give_up("setns");
}

#ifdef WITH_PGM
static pgm_sock_t *open_receiver(const char *host, const char *group, int port)
{
    struct pgm_addrinfo_t *found;
    pgm_sock_t *sock = open_pgm(host, group, port, &found);
    set(sock, PGM_RECV_ONLY, 1);
    set(sock, PGM_PASSIVE, 0);
    set(sock, PGM_RXW_SQNS, 8192);
    set(sock, PGM_PEER_EXPIRY, 300000000);
    set(sock, PGM_SPMR_EXPIRY, 250000);
    set(sock, PGM_NAK_BO_IVL, 50000);
    set(sock, PGM_NAK_RPT_IVL, 2000000);
    set(sock, PGM_NAK_RDATA_IVL, 2000000);
    set(sock, PGM_NAK_DATA_RETRIES, 50);
    set(sock, PGM_NAK_NCF_RETRIES, 50);
    connect_pgm(sock, host, found);
    return sock;
}

static void read_pgm(pgm_sock_t *sock, int host)
{
    static char message[BUFFER];
    size_t length;
    int status;
    do {
        pgm_error_t *error = NULL;
        status = pgm_recv(sock, message, sizeof message, MSG_DONTWAIT, &length, &error);
        units[host] += status == PGM_IO_STATUS_NORMAL && length > 0;
        if (error)
            pgm_error_free(error);
    } while (status == PGM_IO_STATUS_NORMAL);
}

static void run_pgm(const char *group, int port, uint32_t first, char **namespaces)
{
    pgm_error_t *error = NULL;
    pgm_sock_t *sockets[MAX_HOSTS];
    int epoll = epoll_create1(0);
    if (!pgm_init(&error))
        give_up(error ? error->message : "pgm_init");
    for (int host = 0; host < hosts; host++) {
        struct in_addr address = {htonl(first + (uint32_t)host)};
        int options[] = {PGM_RECV_SOCK, PGM_PENDING_SOCK};
        enter(namespaces[host]);
        sockets[host] = open_receiver(inet_ntoa(address), group, port);
        for (int number = 0; number < 2; number++) {
            int fd;
            socklen_t size = sizeof fd;
            if (!pgm_getsockopt(sockets[host], IPPROTO_PGM, options[number], &fd, &size))
                give_up("a descriptor of OpenPGM");
            watch(epoll, fd, (uint32_t)host);
        }
    }
    watch(epoll, 0, INPUT);
    ready();
    for (;;) {
        struct epoll_event events[EVENTS];
        int found = epoll_wait(epoll, events, EVENTS, 50);
        for (int event = 0; event < found; event++) {
            if (events[event].data.u32 == INPUT)
                report();
            else
                read_pgm(sockets[events[event].data.u32], (int)events[event].data.u32);
        }
        if (!found) /* Timers for NAKs. */
            for (int host = 0; host < hosts; host++)
                read_pgm(sockets[host], host);
    }
}
#endif

#ifdef WITH_NORM
static void run_norm(const char *group, int port, char **namespaces)
{
    static char data[BUFFER];
    static int numbers[MAX_HOSTS];
    const void *instance = NormCreateInstance(false);
    for (int host = 0; host < hosts; host++) {
        const void *session = NormCreateSession(instance, group, (uint16_t)port, (uint32_t)(host + 2));
        numbers[host] = host;
        enter(namespaces[host]);
        NormSetUserData(session, &numbers[host]);
        if (!NormSetMulticastInterface(session, "eth") || !NormStartReceiver(session, 1 << 20))
            give_up("NormStartReceiver");
        NormSetRxSocketBuffer(session, 1 << 20);
        NormSetTTL(session, 1);
    }
    struct pollfd waiting[] = {{.fd = 0, .events = POLLIN}, {.fd = NormGetDescriptor(instance), .events = POLLIN}};
    ready();
    for (;;) {
        poll(waiting, 2, -1);
        if (waiting[0].revents)
            report();
        if (!waiting[1].revents)
            continue;
        NormEvent event;
        if (!NormGetNextEvent(instance, &event, false) || event.type != NORM_RX_OBJECT_UPDATED)
            continue;
        int host = *(const int *)NormGetUserData(event.session);
        for (;;) {
            unsigned size = sizeof data;
            if (!NormStreamRead(event.object, data, &size) || !size)
                break;
            units[host] += size;
        }
    }
}
#endif

int main(int count, char **arguments)
{
    if (count < 5)
        return 2;
    unsigned bytes = (unsigned)atoi(arguments[2]);
    if (!strcmp(arguments[1], "udp")) {
        hosts = atoi(arguments[3]);
        if (hosts <= MAX_HOSTS && count - 4 <= MAX_SOCKETS)
            run_udp(bytes, count - 4, arguments + 4);
    }
    hosts = count - 6;
    if (hosts < 1 || hosts > MAX_HOSTS)
        return 2;
#ifdef WITH_PGM
    struct in_addr first;
    if (!strcmp(arguments[1], "pgm") && inet_pton(AF_INET, arguments[5], &first) == 1)
        run_pgm(arguments[3], atoi(arguments[4]), ntohl(first.s_addr), arguments + 6);
#endif
#ifdef WITH_NORM
    unit = bytes;
    if (!strcmp(arguments[1], "norm"))
        run_norm(arguments[3], atoi(arguments[4]), arguments + 6);
#endif
    return 2;
}
