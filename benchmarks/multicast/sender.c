/* Senders that fyrehose is compared with: each passes on the datagrams that it receives.
 *
 * sender udp|each|pgm|norm ADDRESS GROUP PORT LISTEN [HOSTS]
 *
 * udp sends each datagram to the group, each to the HOSTS addresses after ADDRESS, pgm and norm with OpenPGM and with
 * NORM. They receive what they publish from a socket, like a backbone, so that all systems wake up for each message.
 * OpenPGM is encapsulated in UDP. Neither library paces nor waits: there is no congestion control.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#ifdef WITH_PGM
#include "openpgm.h"
#else
#include "give_up.h"
#endif
#ifdef WITH_NORM
#include "norm.h"
#include <pthread.h>
#endif

enum { BUFFER = 65536, RECEIVE_BUFFER = 4 << 20, MAX_HOSTS = 256 };

static const char *address, *group;
static int port, listener;
static char message[BUFFER];

static struct sockaddr_in name_of(const char *host, int number)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)number)};
    if (inet_pton(AF_INET, host, &name.sin_addr) != 1)
        give_up(host);
    return name;
}

static int open_udp(int number)
{
    struct sockaddr_in name = name_of(address, number);
    struct in_addr interface = name.sin_addr;
    int size = RECEIVE_BUFFER, fd = socket(AF_INET, SOCK_DGRAM, 0);
    unsigned char hops = 1, loop = 0;
    if (fd < 0 || bind(fd, (struct sockaddr *)&name, sizeof name))
        give_up("bind");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface) ||
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_TTL, &hops, sizeof hops) ||
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &loop, sizeof loop))
        give_up("multicast options");
    return fd;
}

static void ready(void)
{
    puts("ready");
    fflush(stdout);
}

static void run_udp(int hosts)
{
    struct sockaddr_in targets[MAX_HOSTS];
    int count = hosts ? hosts : 1, out = open_udp(0);
    for (int number = 0; number < count; number++) {
        targets[number] = name_of(hosts ? address : group, port);
        if (hosts)
            targets[number].sin_addr.s_addr = htonl(ntohl(targets[number].sin_addr.s_addr) + (uint32_t)number + 1);
    }
    ready();
    for (;;) {
        ssize_t size = recv(listener, message, sizeof message, 0);
        for (int number = 0; size >= 0 && number < count; number++)
            sendto(out, message, (size_t)size, 0, (struct sockaddr *)&targets[number], sizeof *targets);
    }
}

#ifdef WITH_PGM
static int descriptor(pgm_sock_t *sock, int option)
{
    int fd;
    socklen_t size = sizeof fd;
    if (!pgm_getsockopt(sock, IPPROTO_PGM, option, &fd, &size))
        give_up("a descriptor of OpenPGM");
    return fd;
}

static void run_pgm(void)
{
    pgm_error_t *error = NULL;
    struct pgm_addrinfo_t *found;
    int heartbeats[] = {100000, 100000, 1300000, 7000000, 16000000, 25000000, 30000000};
    if (!pgm_init(&error))
        give_up(error ? error->message : "OpenPGM");
    pgm_sock_t *sock = open_pgm(address, group, port, &found);
    set(sock, PGM_SEND_ONLY, 1);
    set(sock, PGM_UNCONTROLLED_ODATA, 1);
    set(sock, PGM_UNCONTROLLED_RDATA, 1);
    set(sock, PGM_TXW_SQNS, 8192);
    set(sock, PGM_TXW_MAX_RTE, 1 << 30);
    set(sock, PGM_AMBIENT_SPM, 30000000);
    if (!pgm_setsockopt(sock, IPPROTO_PGM, PGM_HEARTBEAT_SPM, heartbeats, sizeof heartbeats))
        give_up("heartbeats of OpenPGM");
    connect_pgm(sock, address, found);
    struct pollfd waiting[] = {{.fd = listener, .events = POLLIN},
                               {.fd = descriptor(sock, PGM_RECV_SOCK), .events = POLLIN},
                               {.fd = descriptor(sock, PGM_PENDING_SOCK), .events = POLLIN}};
    ready();
    char requests[BUFFER];
    for (;;) {
        struct timeval left = {0, 0};
        socklen_t size = sizeof left;
        int wait = 100;
        if (pgm_getsockopt(sock, IPPROTO_PGM, PGM_TIME_REMAIN, &left, &size) && left.tv_sec == 0)
            wait = (int)(left.tv_usec / 1000) + 1;
        int count = poll(waiting, 3, wait < 100 ? wait : 100);
        if (count <= 0 || waiting[1].revents || waiting[2].revents) { /* NAKs and timers. */
            size_t length;
            pgm_error_t *problem = NULL;
            if (pgm_recv(sock, requests, sizeof requests, MSG_DONTWAIT, &length, &problem) == PGM_IO_STATUS_ERROR)
                pgm_error_free(problem);
        }
        if (count > 0 && waiting[0].revents) {
            ssize_t length;
            while ((length = recv(listener, message, sizeof message, MSG_DONTWAIT)) >= 0)
                while (pgm_send(sock, message, (size_t)length, NULL) == PGM_IO_STATUS_WOULD_BLOCK)
                    continue;
        }
    }
}
#endif

#ifdef WITH_NORM
static void *drain(void *instance)
{
    NormEvent event;
    while (NormGetNextEvent(instance, &event, true))
        continue;
    return NULL;
}

static void run_norm(void)
{
    pthread_t events;
    const void *instance = NormCreateInstance(false);
    const void *session = NormCreateSession(instance, group, (uint16_t)port, 1);
    if (!session || !NormSetMulticastInterface(session, "eth"))
        give_up("NormCreateSession");
    NormSetTTL(session, 1);
    NormSetTxRate(session, 1e9);
    NormSetCongestionControl(session, false, false);
    NormSetGrttEstimate(session, 0.01);
    if (!NormStartSender(session, 1, 8 << 20, 1400, 64, 16, 0))
        give_up("NormStartSender");
    NormSetTxSocketBuffer(session, RECEIVE_BUFFER);
    const void *stream = NormStreamOpen(session, 4 << 20, NULL, 0);
    if (!stream || pthread_create(&events, NULL, drain, (void *)(uintptr_t)instance))
        give_up("NormStreamOpen");
    NormStreamSetPushEnable(stream, true);
    ready();
    for (;;) {
        ssize_t size = recv(listener, message, sizeof message, 0);
        if (size <= 0)
            continue;
        unsigned done = 0;
        while (done < (unsigned)size)
            done += NormStreamWrite(stream, message + done, (unsigned)size - done);
        NormStreamMarkEom(stream);
        NormStreamFlush(stream, false, NORM_FLUSH_PASSIVE);
    }
}
#endif

int main(int count, char **arguments)
{
    if (count < 6)
        return 2;
    const char *system = arguments[1];
    address = arguments[2];
    group = arguments[3];
    port = atoi(arguments[4]);
    listener = open_udp(atoi(arguments[5]));
    if (!strcmp(system, "udp"))
        run_udp(0);
    if (!strcmp(system, "each") && count > 6 && atoi(arguments[6]) <= MAX_HOSTS)
        run_udp(atoi(arguments[6]));
#ifdef WITH_PGM
    if (!strcmp(system, "pgm"))
        run_pgm();
#endif
#ifdef WITH_NORM
    if (!strcmp(system, "norm"))
        run_norm();
#endif
    return 2;
}
