/* Prints a fyrehose stream in order, each message once, as SEQUENCE, a tab and DATA: ./careful_subscriber HOST PORT
 * The key of a message, if it has one, follows SEQUENCE and a space.
 * Nothing but a socket: cc -O2 -Wall -Wextra -std=c11 -D_GNU_SOURCE -o careful_subscriber careful_subscriber.c */
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { DELIVER = 1, REQUEST = 4, KEEPALIVE = 16, NOSUBSCRIBE = 1, NOJOURNAL = 2, HEADER = 9, ENVELOPE = 20 };
enum { RING = 16384, ROUND = 4096, RANGE = 1024, TICK = 100 /* ms */, GIVE_UP = 50 /* ticks */ };
typedef unsigned long long Number;

static struct { size_t size; unsigned char packet[65536]; } held[RING]; /* Waits for lower numbers. Mostly untouched. */
static Number next, live, asked;                         /* to be printed next; highest seen; highest asked for */
static unsigned stalled, beyond; /* ticks since next rose; messages in a row of the backbone from beyond next */
static int wire;
static struct sockaddr_in backbone;
static volatile sig_atomic_t stopped;

static void stop(int number) { stopped = number; }

/* KEEPALIVE has FLAGS and TOKEN where REQUEST has FROM and TO. ADDR and PORT stay 0: where this comes from. */
static void tell(unsigned char type, size_t size, Number first, Number last) {
    unsigned char packet[29] = {type};
    for (int i = 0; i < 6; i++) packet[7 + i] = first >> (40 - 8 * i), packet[13 + i] = last >> (40 - 8 * i);
    sendto(wire, packet, size, 0, (struct sockaddr *)&backbone, sizeof backbone);
    if (type == REQUEST && last > asked) asked = last;
}

/* Publisher and counter tell a message that was pushed twice. Publishers share places, so this may miss some. */
static int is_repeat(const unsigned char *envelope) {
    static unsigned char seen[8192][8][ENVELOPE], oldest[8192];
    int shelf = ((envelope[10] << 8 | envelope[11]) ^ (envelope[18] << 8 | envelope[19])) % 8192;
    for (int i = 0; i < 8; i++)
        if (!memcmp(seen[shelf][i], envelope, ENVELOPE)) return 1;
    memcpy(seen[shelf][oldest[shelf]++ % 8], envelope, ENVELOPE);
    return 0;
}

static void print_what_is_due(void) {
    for (size_t slot; held[slot = next % RING].size; held[slot].size = 0, next++, stalled = 0) {
        unsigned char *data = held[slot].packet + HEADER, *end = held[slot].packet + held[slot].size, *key = 0;
        if (end - data >= ENVELOPE && !memcmp(data, "\xf7\x46\x59\x01", 4)) {
            if (is_repeat(data)) continue;
            data += ENVELOPE;
            if (end - data >= 5 && end - data >= 5 + data[4] && !memcmp(data, "\xf7\x46\x4b\x01", 4))
                key = data + 5, data = key + key[-1];
        }
        printf("%llu", next);
        if (key && key < data) putchar(' '), fwrite(key, 1, data - key, stdout);
        putchar('\t');
        fwrite(data, 1, end - data, stdout);
        putchar('\n');
    }
}

static void take(const unsigned char *packet, size_t size, int from_backbone) {
    Number number = 0;
    for (int i = 3; i < HEADER; i++) number = number << 8 | packet[i];
    if (!next && from_backbone) next = number;
    if (!next || number < next) return;
    if (!from_backbone && (number > asked || held[number % RING].size)) return; /* Others may only fill our gaps. */
    if (from_backbone) beyond = number > next ? beyond + 1 : 0;
    if (number > live || live > number + RING) live = number; /* A damaged number far above is soon forgotten. */
    if (number >= next + RING) return;                        /* No room: its turn to be asked for comes. */
    memcpy(held[number % RING].packet, packet, held[number % RING].size = size);
    print_what_is_due();
}

static void tick(void) {
    static unsigned ticks;
    if (ticks++ % 10 == 0) tell(KEEPALIVE, 29, NOJOURNAL, 0);
    if (!next) return;
    stalled++;
    if (live < next) { /* Was the end of a burst lost? Ask for what may follow, more and more rarely. */
        if (stalled >= 8 && !(stalled & (stalled - 1))) tell(REQUEST, 19, next, next + RANGE - 1);
    } else if (stalled >= GIVE_UP && beyond >= 3) { /* A message alone proves no gap: its number may be damaged. */
        Number end = next;
        while (end < next + RING && !held[end % RING].size) end++;
        if (end == next + RING) end = live + 1;
        fprintf(stderr, "lost %llu to %llu\n", next, end - 1);
        next = end, stalled = 0;
        print_what_is_due();
    } else {
        for (Number first = next, end; first <= live && first < next + ROUND; first = end > first ? end : end + 1) {
            for (end = first; end <= live && end < first + RANGE && !held[end % RING].size;) end++;
            if (end > first) tell(REQUEST, 19, first, end - 1);
        }
    }
}

int main(int argc, char **argv) {
    struct addrinfo *found, hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM};
    if (argc != 3 || getaddrinfo(argv[1], argv[2], &hints, &found)) {
        fprintf(stderr, "usage: %s HOST PORT\n", argv[0]);
        return 2;
    }
    memcpy(&backbone, found->ai_addr, sizeof backbone);
    freeaddrinfo(found);
    wire = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(wire, SOL_SOCKET, SO_RCVBUF, &(int){4 << 20}, sizeof(int));
    signal(SIGINT, stop), signal(SIGTERM, stop);
    for (long ticked = -1; !stopped;) {
        static unsigned char in[65536];
        struct sockaddr_in from;
        ssize_t size = recvfrom(wire, in, sizeof in, MSG_DONTWAIT, (struct sockaddr *)&from, &(socklen_t){sizeof from});
        if (size >= HEADER && in[0] == DELIVER && size == HEADER + (in[1] << 8 | in[2]))
            take(in, size, from.sin_addr.s_addr == backbone.sin_addr.s_addr && from.sin_port == backbone.sin_port);
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        long due = (now.tv_sec * 1000 + now.tv_nsec / 1000000) / TICK;
        if (due != ticked) ticked = due, tick();
        if (size < 0) fflush(stdout), poll(&(struct pollfd){wire, POLLIN, 0}, 1, TICK);
    }
    tell(KEEPALIVE, 29, NOSUBSCRIBE | NOJOURNAL, 0); /* Goodbye. */
    return fflush(stdout) || ferror(stdout);
}
